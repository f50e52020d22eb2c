#include "options.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "store/format/sizes.h"
#include "verb.h"

namespace gpuckpt::cli {

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::env(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option Option::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

Option Option::needs(const std::string& other) {
  option_->needs(other);
  return *this;
}

namespace {

// Whether the text is a whole number that fits an int.
bool is_number(const std::string& text, int* value) {
  const bool number = !text.empty() && text.size() < 10 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  if (number) *value = std::stoi(text);
  return number;
}

}  // namespace

Option Option::positive() {
  return check("N", [](const std::string& text) {
    int value = 0;
    return is_number(text, &value) && value > 0
               ? ""
               : fmt::format("\"{}\" is not a number of 1 or more", text);
  });
}

Option Option::process() {
  return check("PID", [](const std::string& text) {
    int value = 0;
    return is_number(text, &value) && value > 0 ? "" : fmt::format("\"{}\" is no process id", text);
  });
}

namespace {

// Whether the text is a number, or "GPU-" and 32 hexadecimal digits with dashes between them.
bool names_device(const std::string& text) {
  int number = 0;
  if (is_number(text, &number)) return number >= 0;
  if (!text.starts_with("GPU-")) return false;
  const std::string digits = text.substr(4);
  return std::count_if(digits.begin(), digits.end(), [](unsigned char c) { return isxdigit(c); }) ==
             32 &&
         digits.find_first_not_of("0123456789abcdefABCDEF-") == std::string::npos;
}

bool is_pair(const std::string& text) {
  const size_t equals = text.find('=');
  return equals != std::string::npos && names_device(text.substr(0, equals)) &&
         names_device(text.substr(equals + 1));
}

}  // namespace

Option Option::device_map() {
  return check("MAP", [](const std::string& text) {
    bool good = true;
    for (size_t at = 0; good && !text.empty() && at <= text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      good = is_pair(text.substr(at, end - at));
      at = end + 1;
    }
    return good
               ? ""
               : fmt::format(
                     "\"{}\" is not A=B[,C=D...] with numbers of devices, or their UUIDs (GPU-...)",
                     text);
  });
}

Option Option::range(int least, int most) {
  return check("N", [least, most](const std::string& text) {
    int value = 0;
    return is_number(text, &value) && value >= least && value <= most
               ? ""
               : fmt::format("\"{}\" is not a number from {} to {}", text, least, most);
  });
}

Option Option::one_of(const std::vector<std::string>& values) {
  std::string choices, kind = "{";
  for (size_t i = 0; i < values.size(); ++i) {
    choices += (!i ? "" : i + 1 == values.size() ? " or " : ", ") + values[i];
    kind += (i ? "," : "") + values[i];
  }
  return check(kind + "}", [values, choices](const std::string& text) {
    return std::find(values.begin(), values.end(), text) != values.end()
               ? ""
               : fmt::format("\"{}\" is not {}", text, choices);
  });
}

Option Option::duration() {
  return check("DUR", [](const std::string& text) {
    uint64_t ms;
    return parse_duration(text, &ms)
               ? ""
               : fmt::format("\"{}\" is not a duration such as 30s, 5m or 500ms", text);
  });
}

Option Option::size() {
  return check("SIZE", [](const std::string& text) {
    uint64_t bytes;
    return store::parse_size(text, &bytes)
               ? ""
               : fmt::format("\"{}\" is not a size such as 500M or 20G", text);
  });
}

Option Option::check(const std::string& kind,
                     std::function<std::string(const std::string&)> fault) {
  option_->check(CLI::Validator([fault](std::string& text) { return fault(text); }, kind));
  return *this;
}

Option Verb::option(const std::string& name, std::string& target, const std::string& help) {
  return Option(app_->add_option(name, target, help));
}

Option Verb::option(const std::string& name, int& target, const std::string& help) {
  return Option(app_->add_option(name, target, help));
}

Option Verb::option(const std::string& name, unsigned& target, const std::string& help) {
  return Option(app_->add_option(name, target, help));
}

Option Verb::option(const std::string& name, std::optional<uint64_t>& target,
                    const std::string& help) {
  return Option(app_->add_option(name, target, help));
}

Option Verb::option(const std::string& name, std::vector<std::string>& target,
                    const std::string& help) {
  return Option(app_->add_option(name, target, help));
}

Option Verb::flag(const std::string& name, bool& target, const std::string& help) {
  return Option(app_->add_flag(name, target, help));
}

Option Verb::flag(const std::string& name, std::string& target, const std::string& standard,
                  const std::string& help) {
  return Option(app_->add_flag(name + "{" + standard + "}", target, help));
}

void Verb::prefix_command() { app_->prefix_command(); }
std::vector<std::string> Verb::remaining() const { return app_->remaining(); }
void Verb::footer(const std::string& text) { app_->footer(text); }
// CLI11 from 2.4 on ignores a variable whose value its option refuses, as if it were not set.
static void refuse_ignored_variables(CLI::App* verb) {
  for (CLI::Option* option : verb->get_options()) {
    const std::string variable = option->get_envname();
    const char* value = variable.empty() ? nullptr : getenv(variable.c_str());
    if (!value || !*value || option->count()) continue;
    option->add_result(value);
    option->run_callback();  // throws the option's complaint about the value
  }
}

void Verb::callback(std::function<void()> body) {
  app_->callback([app = app_, body = std::move(body)] {
    refuse_ignored_variables(app);
    body();
  });
}

CommandLine::CommandLine(const std::string& description, const std::string& name,
                         const std::string& version, const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
  app_->failure_message(CLI::FailureMessage::simple);
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

Verb CommandLine::verb(const std::string& name, const std::string& help) {
  return Verb(app_->add_subcommand(name, help));
}

void CommandLine::option_of_all(const std::string& name,
                                std::function<void(const std::string&)> take,
                                const std::string& help) {
  for (CLI::App* verb : app_->get_subcommands({}))
    verb->add_option_function<std::string>(name, take, help);
}

void CommandLine::flag_of_all(const std::string& name, std::function<void()> take,
                              const std::string& help) {
  for (CLI::App* verb : app_->get_subcommands({})) verb->add_flag_callback(name, take, help);
}

// The environment variable that gave the option with which a complaint begins; empty: the command
// line gave it.
std::string CommandLine::variable_of(const std::string& complaint,
                                     const std::vector<std::string>& words) const {
  for (const CLI::App* verb : app_->get_subcommands()) {
    for (const CLI::Option* option : verb->get_options()) {
      const std::string variable = option->get_envname();
      const std::string name = option->get_name();
      if (variable.empty() || !getenv(variable.c_str()) || !complaint.starts_with(name)) continue;
      const bool said = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        return word == name || word.starts_with(name + "=");
      });
      if (!said) return variable;
    }
  }
  return "";
}

bool CommandLine::parse(int argc, char** argv) {
  auto has = [&](const std::string& name) {
    auto verbs = app_->get_subcommands({});
    return std::any_of(verbs.begin(), verbs.end(),
                       [&](const CLI::App* verb) { return verb->get_name() == name; });
  };
  if (argc > 1 && argv[1][0] != '-' && !has(argv[1])) {
    complain(fmt::format("there is no verb \"{}\"; `gpuckpt --help` lists them", argv[1]));
    return false;
  }
  if (argc <= 1) {
    print(stderr,
          "gpuckpt needs a verb, as in\n"
          "  gpuckpt run --store DIR -- python train.py    start a program\n"
          "  gpuckpt checkpoint PID                        take a snapshot of it\n"
          "  gpuckpt list DIR                              see what there is\n"
          "  gpuckpt restore DIR                           put the newest back and run it\n"
          "`gpuckpt --help` lists all verbs, `gpuckpt VERB --help` what each takes.\n");
    return false;
  }
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error) == 0;  // --help, --version
    const std::string variable =
        variable_of(error.what(), std::vector<std::string>(argv + 1, argv + argc));
    complain(fmt::format("{}{}; `gpuckpt {}--help` says what it takes", error.what(),
                         variable.empty() ? "" : " (from " + variable + ")",
                         argc > 1 && has(argv[1]) ? argv[1] + std::string(" ") : ""));
    return false;
  }
  return true;
}

}  // namespace gpuckpt::cli
