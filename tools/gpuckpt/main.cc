// gpuckpt: the command line. One file per verb; this one only collects them.

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "verb.h"

namespace gpuckpt::cli {

int run_main(int argc, char** argv) {
  Context context;
  // What follows "--" is another program's command line, which is not parsed.
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--") != 0) continue;
    context.command.assign(argv + i + 1, argv + argc);
    argc = i;
    break;
  }
  CommandLine line(
      "Snapshots and restores running GPU programs, unchanged and without root.", "gpuckpt",
      std::string("gpuckpt ") + GPUCKPT_VERSION,
      "`gpuckpt VERB --help` lists the options and exit codes of each, and the GPUCKPT_* "
      "variables that can be set instead of options.");
  define_run(line, &context);
  define_checkpoint(line, &context);
  define_restore(line, &context);
  define_list(line, &context);
  define_inspect(line, &context);
  define_verify(line, &context);
  define_diff(line, &context);
  define_prune(line, &context);
  define_repair(line, &context);
  define_export(line, &context);
  define_import(line, &context);
  define_mirror(line, &context);
  define_suspend(line, &context);
  define_resume(line, &context);
  define_stats(line, &context);
  define_doctor(line, &context);
  define_report(line, &context);
  // Every verb may open an encrypted store. Programs that it starts (writer, restored program)
  // inherit the variable.
  line.option_of_all(
      "--key-file",
      [](const std::string& file) {
        setenv("GPUCKPT_KEY_FILE", std::filesystem::absolute(file).c_str(), 1);
      },
      "The store is encrypted with this key (GPUCKPT_KEY_FILE); a new one will be");
  line.flag_of_all(
      "--any-owner", [] { setenv("GPUCKPT_ANY_OWNER", "1", 1); },
      "Take a store that belongs to another user (GPUCKPT_ANY_OWNER): root restores it as that "
      "user");
  if (!line.parse(argc, argv)) return kExitUsage;
  return context.exit_code;
}

}  // namespace gpuckpt::cli

int main(int argc, char** argv) { return gpuckpt::cli::run_main(argc, argv); }
