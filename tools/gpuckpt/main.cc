// gpuckpt: the command line. One file per verb; this one only puts them together.

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "verb.h"

namespace gpuckpt::cli {

int run_main(int argc, char** argv) {
  Context context;
  // What follows "--" is another program's command line: CLI11 must not look at it.
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--") != 0) continue;
    context.command.assign(argv + i + 1, argv + argc);
    argc = i;
    break;
  }
  CLI::App app{"Snapshots and restores running GPU programs, unchanged and without root.",
               "gpuckpt"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("gpuckpt ") + GPUCKPT_VERSION);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer(
      "`gpuckpt VERB --help` lists the options and exit codes of each. Every option has a "
      "GPUCKPT_* twin.");
  define_run(app, &context);
  define_checkpoint(app, &context);
#ifdef GPUCKPT_HAVE_RESTORE
  define_restore(app, &context);
#endif
  define_list(app, &context);
  define_inspect(app, &context);
  define_verify(app, &context);
  define_diff(app, &context);
  define_prune(app, &context);
  define_repair(app, &context);
  define_export(app, &context);
  define_import(app, &context);
  define_mirror(app, &context);
  define_suspend(app, &context);
  define_resume(app, &context);
  define_stats(app, &context);
  define_doctor(app, &context);
  define_report(app, &context);
  // Every verb may meet an encrypted store. What it starts (writer, restored program) inherits it.
  for (CLI::App* verb : app.get_subcommands({})) {
    verb->add_option_function<std::string>(
        "--key-file",
        [](const std::string& file) {
          setenv("GPUCKPT_KEY_FILE", std::filesystem::absolute(file).c_str(), 1);
        },
        "The store is encrypted with this key (GPUCKPT_KEY_FILE); a new one will be");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return context.exit_code;
}

}  // namespace gpuckpt::cli

int main(int argc, char** argv) { return gpuckpt::cli::run_main(argc, argv); }
