// The parser of the command line: verbs, their options, flags and positionals. It wraps CLI11,
// which only options.cc includes, because its headers cost each file about seven seconds of
// compilation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gpuckpt::cli {

// One declared option. It is a handle: each call adds a property. --help shows all of them.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  // The variable that gives the value where the command line has none.
  Option env(const std::string& variable);
  Option show_default();  // shows the present value of the target as the default
  Option excludes(const std::string& other);
  Option needs(const std::string& other);

  Option positive();
  Option process();     // the value is a process id
  Option device_map();  // the value is a map as for --gpu-map
  Option range(int least, int most);
  Option one_of(const std::vector<std::string>& values);
  Option duration();
  Option size();
  // `fault` returns what is wrong with a value, or "".
  Option check(const std::string& kind, std::function<std::string(const std::string&)> fault);

 private:
  CLI::Option* option_;
};

// One verb, as a handle. Targets must outlive the parsing, as captures of the body do.
class Verb {
 public:
  explicit Verb(CLI::App* app) : app_(app) {}

  // `name` without dashes is a positional.
  Option option(const std::string& name, std::string& target, const std::string& help);
  Option option(const std::string& name, int& target, const std::string& help);
  Option option(const std::string& name, unsigned& target, const std::string& help);
  Option option(const std::string& name, std::optional<uint64_t>& target, const std::string& help);
  Option option(const std::string& name, std::vector<std::string>& target, const std::string& help);
  Option flag(const std::string& name, bool& target, const std::string& help);
  // `--name` alone means `standard`, `--name=VALUE` another value. `--name VALUE` is not accepted.
  Option flag(const std::string& name, std::string& target, const std::string& standard,
              const std::string& help);

  // The first word that is no option, and all that follow it, belong to another program:
  // remaining().
  void prefix_command();
  std::vector<std::string> remaining() const;

  void footer(const std::string& text);
  void callback(std::function<void()> body);  // called by parse() when the verb was chosen

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& name, const std::string& version,
              const std::string& footer);
  ~CommandLine();

  Verb verb(const std::string& name, const std::string& help);
  // Adds an option to every verb declared so far; `take` gets its value.
  void option_of_all(const std::string& name, std::function<void(const std::string&)> take,
                     const std::string& help);
  // Adds a flag, an option without a value, in the same way.
  void flag_of_all(const std::string& name, std::function<void()> take, const std::string& help);

  // Runs the verb that was asked for. False: wrong usage, which it has explained on stderr.
  bool parse(int argc, char** argv);

 private:
  std::string variable_of(const std::string& complaint,
                          const std::vector<std::string>& words) const;

  std::unique_ptr<CLI::App> app_;
};

}  // namespace gpuckpt::cli
