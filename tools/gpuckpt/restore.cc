// gpuckpt restore: puts a snapshot back as a running program and stays as its parent.

#include "restore/supervisor/supervisor.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "process/first_process.h"
#include "process/install.h"
#include "process/job_lease.h"
#include "process/store_owner.h"
#include "status_file.h"
#include "store/io/json_text.h"
#include "store/io/remote.h"
#include "store/store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  std::string reference, mirror, files = "check";
  restore::Options driver;
  bool no_namespaces = false, older = false;
};

std::string absolute(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
}

// Opens the snapshot; src/restore does the rest, and prints its own messages.
Status open(Options* options, std::unique_ptr<store::Store>* store,
            std::unique_ptr<store::SnapshotReader>* reader) {
  options->driver.keep_files = options->files == "keep";
  options->driver.namespaces = !options->no_namespaces;
  options->driver.pid_file = absolute(options->driver.pid_file);
  options->driver.status_file = absolute(options->driver.status_file);
  options->driver.launcher = installation().launcher;
  if (!readable(options->driver.launcher)) {
    return Status::NotFound(fmt::format("{} is missing: build or install gpuckpt completely",
                                        options->driver.launcher));
  }
  Status status = become_owner_of(options->reference);
  if (!status.ok()) return status;
  status = store::open_reference(options->reference, {.any_owner = any_owner()}, store, reader);
  const bool lost = status.code() == kExitAbsent || status.code() == kExitCorrupt;
  if (!lost || options->mirror.empty()) return status;
  std::string path, name;
  store::split_reference(options->reference, &path, &name);
  complain(status.text() + "; trying the mirror " + options->mirror);
  if (Status owner = become_owner_of(options->mirror); !owner.ok()) return owner;
  return store::open_reference(options->mirror + (name.empty() ? "" : "@" + name),
                               {.any_owner = any_owner()}, store, reader);
}

// The job's next older snapshot than `id` (empty: than the one asked for); empty: there is none.
std::string next_older(const std::string& path, std::string id, const std::string& name) {
  std::unique_ptr<store::Store> store;
  if (!store::Store::open(path, {.any_owner = any_owner()}, &store).ok()) return "";
  if (id.empty() && !store->resolve(name, &id).ok()) return "";
  std::vector<store::SnapshotInfo> list;
  if (!store->list(&list).ok()) return "";
  auto job_of = [](const store::SnapshotInfo& info) {
    const auto meta = store::parse_json(info.meta);
    return meta.is_object() && meta.contains("job") ? meta["job"] : nlohmann::json();
  };
  nlohmann::json job;
  for (auto it = list.rbegin(); it != list.rend(); ++it) {
    if (it->id == id) job = job_of(*it);
    // The job of a snapshot whose manifest is lost is not known: neighbouring snapshots are taken
    // to be of the same job.
    if (it->id < id && it->status.ok() && !it->branch && (job.is_null() || job_of(*it) == job))
      return it->id;
  }
  return "";
}

// Restores an older snapshot with all options of this command, in a new process image, because a
// failed restore leaves this one in an unknown state. Returns when there is no older one.
void take_older(const Options& options, const std::string& failed) {
  std::string path, name;
  store::split_reference(options.reference, &path, &name);
  const std::string older = next_older(path, failed, name);
  if (older.empty()) {
    complain("there is no older snapshot of the job: nothing was restored");
    return;
  }
  complain(fmt::format("{} could not be restored; taking the next older snapshot, {}",
                       failed.empty() ? options.reference : "snapshot " + failed, older));
  std::ifstream in("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string a; std::getline(in, a, '\0');)
    arguments.push_back(a == options.reference ? path + "@" + older : a);
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  complain(fmt::format("cannot run gpuckpt restore: {}", strerror(errno)));
}

// Restores. The restored program is a run of its job, and may publish into the job's line when no
// other run has the job.
int restore(Options* options, std::unique_ptr<store::Store> store,
            const store::SnapshotReader& reader, JobLease* lease, bool* ran) {
  if (!options->driver.dry_run && !options->driver.steps && !store::is_remote(store->path())) {
    auto meta = store::parse_json(reader.meta());
    const std::string job =
        meta.is_object() && meta.contains("job") && meta["job"].is_string() ? meta["job"] : "";
    if (Status status = lease->take_restored(std::move(store), job); !status.ok())
      complain(fmt::format("warning: nothing keeps another run of this job from starting: {}",
                           status.text()));
    options->driver.run = std::stoull(lease->run(), nullptr, 16);
    options->driver.on_running = [lease](int pid) { lease->process_is(pid); };
    lease->keep_on_thread();
  }
  return restore::restore_snapshot(reader, options->driver, ran);
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
  verb.flag("--dry-run", options->driver.dry_run, "Only check whether it can be restored here");
  verb.flag("--lazy", options->driver.lazy,
            "Run at once, read memory when it is touched and in the background; where the "
            "kernel does not allow it, read all of it first, with a warning")
      .env("GPUCKPT_LAZY");
  verb.option("--pid-file", options->driver.pid_file,
              "Gets the program's pid at the moment it runs again")
      .env("GPUCKPT_PID_FILE");
  verb.option("--status-file", options->driver.status_file, "Where the outcome is reported (JSON)")
      // Not GPUCKPT_STATUS_FILE: there the program itself reports its snapshots.
      .env("GPUCKPT_RESTORE_STATUS_FILE");
  verb.option(
          "--files", options->files,
          "Files open for writing: check that they match and cut them to the saved length (what "
          "the snapshot holds of files is put back, the later state set aside), or keep them "
          "as they are")
      // Not GPUCKPT_FILES: that is the variable of `run --files-in-snapshot`.
      .env("GPUCKPT_RESTORE_FILES")
      .one_of({"check", "keep"})
      .show_default();
  verb.option("--gpu-map", options->driver.gpu_map,
              "A=B[,C=D...]: device B of this machine in the place of the program's device A; "
              "numbers, or UUIDs (GPU-...)")
      .env("GPUCKPT_GPU_MAP")
      .device_map();
  verb.option("--threads", options->driver.threads, "Threads that read the store, 0: all cores")
      .env("GPUCKPT_THREADS")
      .range(0, 1024);
  verb.option("--steps", options->driver.steps,
              "Let N calls that change something on a device pass, then let the program wait "
              "(what verify --replay does)");
  verb.flag(
      "--older", options->older,
      "When the snapshot cannot be restored, take the next older one of the same job (what run "
      "--resume auto does)");
  verb.flag("--no-namespaces", options->no_namespaces,
            "Make no namespaces: the program gets new process and thread ids");
  verb.footer(
      "Ends with the program's own status; failures of the restore itself end with 125 and their "
      "class is in\n"
      "--status-file. With --dry-run the class itself is the exit code.\n" +
      exit_codes({kExitOk, kExitUsage, kExitAbsent, kExitIncompatible, kExitCorrupt, kExitRefused,
                  kExitLauncher}));
  verb.callback([options, context] {
    end_on_signals_as_first_process();
    std::unique_ptr<store::Store> store;
    std::unique_ptr<store::SnapshotReader> reader;
    Status status = open(options.get(), &store, &reader);
    if (!status.ok()) {
      complain(status.text());
      write_status_file(options->driver.status_file, status);
      if (options->older) take_older(*options, "");
      context->exit_code = options->driver.dry_run ? status.code() : kExitLauncher;
      return;
    }
    const std::string id = reader->id();
    bool ran = false;
    JobLease lease;  // kept for the older snapshot as well
    context->exit_code = restore(options.get(), std::move(store), *reader, &lease, &ran);
    if (!ran && context->exit_code && options->older && !options->driver.dry_run) {
      reader.reset();
      take_older(*options, id);
    }
  });
}

}  // namespace gpuckpt::cli
