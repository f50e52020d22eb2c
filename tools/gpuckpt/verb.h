// What every verb's file has: one function that declares its options and what to run. Results go to
// stdout, everything else to stderr; the status becomes the exit code.
#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "store/status.h"

namespace gpuckpt::cli {

using store::Status;

// Shared by all verbs.
struct Context {
  bool json = false;
  int exit_code = kExitOk;
  std::vector<std::string> command;  // what stood after "--" (run)

  // Runs a verb's body: prints a failure on stderr and keeps its class.
  void run(const std::function<Status()>& body);
};

// Says on stderr: "gpuckpt: TEXT".
void complain(const std::string& text);
void print_json(const std::string& json);

// "30s", "5m", "500ms", "1h"; a plain number is seconds.
bool parse_duration(const std::string& text, uint64_t* ms);
std::string show_duration_us(uint64_t us);
CLI::Validator duration_check();
CLI::Validator size_check();

// The text below a verb's options: its exit codes.
std::string exit_codes(std::initializer_list<int> codes);

CLI::Option* add_json(CLI::App* app, Context* context);
CLI::Option* add_store(CLI::App* app,
                       std::string* store);  // positional, GPUCKPT_STORE, ./gpuckpt.store
bool any_owner();                            // GPUCKPT_ANY_OWNER

void define_run(CLI::App& app, Context* context);
void define_checkpoint(CLI::App& app, Context* context);
void define_restore(CLI::App& app, Context* context);
void define_list(CLI::App& app, Context* context);
void define_inspect(CLI::App& app, Context* context);
void define_verify(CLI::App& app, Context* context);
void define_diff(CLI::App& app, Context* context);
void define_repair(CLI::App& app, Context* context);
void define_export(CLI::App& app, Context* context);
void define_import(CLI::App& app, Context* context);
void define_mirror(CLI::App& app, Context* context);
void define_prune(CLI::App& app, Context* context);
void define_suspend(CLI::App& app, Context* context);
void define_resume(CLI::App& app, Context* context);
void define_stats(CLI::App& app, Context* context);
void define_doctor(CLI::App& app, Context* context);
void define_report(CLI::App& app, Context* context);

}  // namespace gpuckpt::cli
