// gpuckpt restore: puts a snapshot back as a running program and stays as its parent.

#include "restore/front.h"

#include <filesystem>

#include <fmt/format.h>

#include "install.h"
#include "status_file.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  std::string reference, mirror, files = "check";
  restore::Options front;
  bool no_namespaces = false;
};

std::string absolute(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
}

// Opens the snapshot; the rest is src/restore's, including its own messages.
Status open(Options* options, std::unique_ptr<store::Store>* store,
            std::unique_ptr<store::SnapshotReader>* reader) {
  options->front.keep_files = options->files == "keep";
  options->front.namespaces = !options->no_namespaces;
  options->front.pid_file = absolute(options->front.pid_file);
  options->front.status_file = absolute(options->front.status_file);
  options->front.launcher = installation().launcher;
  if (!readable(options->front.launcher)) {
    return Status::NotFound(
        fmt::format("{} is missing: build or install gpuckpt completely", options->front.launcher));
  }
  Status status =
      store::open_reference(options->reference, {.any_owner = any_owner()}, store, reader);
  const bool lost = status.code() == kExitAbsent || status.code() == kExitCorrupt;
  if (!lost || options->mirror.empty()) return status;
  std::string path, name;
  store::split_reference(options->reference, &path, &name);
  complain(status.text() + "; trying the mirror " + options->mirror);
  return store::open_reference(options->mirror + (name.empty() ? "" : "@" + name),
                               {.any_owner = any_owner()}, store, reader);
}

}  // namespace

void define_restore(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("restore", "Put a snapshot back and run it; ends as the program ends");
  verb.option("STORE[@ID]", options->reference,
              "The snapshot: STORE@ID, STORE@TAG, or STORE for the newest")
      .required();
  verb.option("--mirror", options->mirror,
              "Where else the snapshot is, when that store does not have it (whole) any more")
      .env("GPUCKPT_MIRROR");
  verb.flag("--dry-run", options->front.dry_run, "Only check whether it can be restored here");
  verb.flag("--lazy", options->front.lazy,
            "Run at once, read memory when it is touched and in the background; where the "
            "kernel does not allow it (it needs root), read all of it first, with a warning")
      .env("GPUCKPT_LAZY");
  verb.option("--pid-file", options->front.pid_file,
              "Gets the program's pid at the moment it runs again")
      .env("GPUCKPT_PID_FILE");
  verb.option("--status-file", options->front.status_file, "Where the outcome is reported (JSON)")
      // Not GPUCKPT_STATUS_FILE: that is where the program itself reports its snapshots.
      .env("GPUCKPT_RESTORE_STATUS_FILE");
  verb.option("--files", options->files,
              "Files open for writing: check that they match and cut them to the saved "
              "length, or keep them as they are")
      .env("GPUCKPT_FILES")
      .one_of({"check", "keep"})
      .show_default();
  verb.option("--gpu-map", options->front.gpu_map,
              "A=B[,C=D...]: device B of this machine in the place of the program's device A; "
              "numbers, or UUIDs (GPU-...)")
      .env("GPUCKPT_GPU_MAP");
  verb.option("--threads", options->front.threads, "Threads that read the store, 0: all cores")
      .env("GPUCKPT_THREADS");
  verb.option("--steps", options->front.steps,
              "Let N calls that change something on a device pass, then let the program wait "
              "(what verify --replay does)");
  verb.flag("--no-namespaces", options->no_namespaces,
            "Make no namespaces: the program gets new process and thread ids");
  verb.footer(
      "Ends with the program's own status; failures of the restore itself end with 125 and their "
      "class is in\n"
      "--status-file. With --dry-run the class itself is the exit code.\n" +
      exit_codes({kExitOk, kExitUsage, kExitAbsent, kExitIncompatible, kExitCorrupt, kExitRefused,
                  kExitLauncher}));
  verb.callback([options, context] {
    std::unique_ptr<store::Store> store;
    std::unique_ptr<store::SnapshotReader> reader;
    Status status = open(options.get(), &store, &reader);
    if (!status.ok()) {
      complain(status.text());
      write_status_file(options->front.status_file, status);
      context->exit_code = options->front.dry_run ? status.code() : kExitLauncher;
      return;
    }
    context->exit_code = restore::restore_snapshot(*reader, options->front);
  });
}

}  // namespace gpuckpt::cli
