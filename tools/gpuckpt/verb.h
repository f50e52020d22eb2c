// What every verb's file has: one function that declares its options and what to run. Results go to
// stdout, everything else to stderr; the status becomes the exit code.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json_fwd.hpp>

#include "options.h"
#include "store/io/printable.h"
#include "store/status.h"

namespace gpuckpt::cli {

using store::Status;

// Shared by all verbs.
struct Context {
  bool json = false;
  int exit_code = kExitOk;
  std::vector<std::string> command;  // what followed "--" (run)

  // Runs a verb's body: prints a failure on stderr and keeps its class.
  void run(const std::function<Status()>& body);
};

// Says on stderr: "gpuckpt: TEXT".
void complain(const std::string& text);
// On one line of standard output. What is not UTF-8 is replaced.
void print_json(const nlohmann::json& json);
// Text of another program, on one line and shortened to `longest` bytes.
std::string printable(const std::string& text, size_t longest);

// Prints. Every verb's output goes through here, so that no text in it acts as a command of the
// terminal. Text that could contain line breaks is made printable() by the caller.
void print_text(FILE* to, const std::string& text);
template <typename... Values>
void print(FILE* to, fmt::format_string<Values...> format, Values&&... values) {
  print_text(to, fmt::format(format, std::forward<Values>(values)...));
}
template <typename... Values>
void print(fmt::format_string<Values...> format, Values&&... values) {
  print_text(stdout, fmt::format(format, std::forward<Values>(values)...));
}

// "30s", "5m", "500ms", "1h"; a plain number is seconds.
bool parse_duration(const std::string& text, uint64_t* ms);
std::string show_duration_us(uint64_t us);

// The text below a verb's options: its exit codes.
std::string exit_codes(std::initializer_list<int> codes);

Option add_json(Verb verb, Context* context);
Option add_store(Verb verb, std::string* store);  // positional, GPUCKPT_STORE, ./gpuckpt.store
Option add_sim(Verb verb, std::string* sim, const std::string& help);  // --sim, GPUCKPT_SIM
bool simulated(const std::string& sim);  // did --sim ask for the simulated GPU?
bool any_owner();                        // GPUCKPT_ANY_OWNER

void define_run(CommandLine& line, Context* context);
void define_checkpoint(CommandLine& line, Context* context);
void define_restore(CommandLine& line, Context* context);
void define_list(CommandLine& line, Context* context);
void define_inspect(CommandLine& line, Context* context);
void define_verify(CommandLine& line, Context* context);
void define_diff(CommandLine& line, Context* context);
void define_repair(CommandLine& line, Context* context);
void define_export(CommandLine& line, Context* context);
void define_import(CommandLine& line, Context* context);
void define_mirror(CommandLine& line, Context* context);
void define_prune(CommandLine& line, Context* context);
void define_suspend(CommandLine& line, Context* context);
void define_resume(CommandLine& line, Context* context);
void define_stats(CommandLine& line, Context* context);
void define_doctor(CommandLine& line, Context* context);
void define_report(CommandLine& line, Context* context);

}  // namespace gpuckpt::cli
