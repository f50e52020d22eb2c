// gpuckpt run: sets the environment and becomes the program. `LD_PRELOAD=libgpuckpt.so CMD` with
// the same variables does the same; this command also checks that it will work.

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "children.h"
#include "process/first_process.h"
#include "process/install.h"
#include "process/job_lease.h"
#include "process/process.h"
#include "process/resume_job.h"
#include "restore/preflight/process_ids.h"
#include "status_file.h"
#include "store/io/remote.h"
#include "store/store.h"
#include "stores/writable_store.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  bool self_contained = false;
  std::string sim, store, mirror, job, every, keep, level, purpose, budget, signal, on_term,
      sockets, users, resume = "never", resume_wait = "5m", status_file, timeout, children, files;
  std::vector<std::string> command;
};

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// Warns now when snapshots cannot be written, because the program starts all the same, and the user
// would learn it only when the first snapshot fails.
void warn_about_store(const std::string& path) {
  std::unique_ptr<store::Store> store;
  std::string directory;
  if (Status status = check_writable(store_path(path), &store, &directory); !status.ok())
    complain(fmt::format("warning: snapshots will fail: {}", status.text()));
}

// Warns of files that the library cannot read or write, which it would report at the first snapshot
// only.
void warn_about_files(const Options& options) {
  const char* key = getenv("GPUCKPT_KEY_FILE");
  if (key && *key && access(key, R_OK) != 0)
    complain(fmt::format("warning: snapshots will fail: the key file {} cannot be read ({})", key,
                         strerror(errno)));
  if (options.status_file.empty()) return;
  const std::string folder = std::filesystem::path(absolute(options.status_file)).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    complain(fmt::format("warning: the status file {} cannot be written: {}: {}",
                         options.status_file, folder, strerror(errno)));
}

// Another user can make /tmp/gpuckpt-UID first. The library then listens nowhere.
void warn_about_session_folder() {
  auto value = [](const char* name) { return getenv(name) ? getenv(name) : ""; };
  const std::string fault =
      fault_of_session_folders(value("GPUCKPT_SESSION_DIR"), value("XDG_RUNTIME_DIR"), geteuid());
  if (fault.empty()) return;
  complain(fmt::format(
      "warning: gpuckpt's commands cannot reach the program, because the session folder {}: have "
      "that removed, or set GPUCKPT_SESSION_DIR to a folder of your own",
      fault));
}

void warn_about_ids() {
  const char* namespaces = getenv("GPUCKPT_NAMESPACES");
  if (namespaces && strcmp(namespaces, "0") == 0) return;  // the user has chosen
  if (const std::string why = restore::why_no_job_ids(); !why.empty())
    complain(
        fmt::format("warning: if the program starts other processes, this machine will not be "
                    "able to restore it, except as root or with user namespaces ({})",
                    why));
}

Status check_files(const Options& options) {
  const Installation& own = installation();
  std::vector<std::string> needed = {own.library, own.writer};
  if (simulated(options.sim))
    needed.insert(needed.end(), {own.sim_driver, own.sim_runtime, own.sim_compilers});
  if (options.sim == "torch") needed.push_back(own.sim_python + "/sitecustomize.py");
  for (const std::string& path : needed) {
    if (!readable(path)) {
      return Status::NotFound(
          fmt::format("{} is missing: build or install gpuckpt completely", path));
    }
  }
  return Status::Ok();
}

// Whether the library accepts the signal (signal_by_name in src/snapshot/trigger/config.cc): NAME,
// SIGNAME, RTMIN+N, a number, or none.
bool is_signal(std::string name) {
  static const std::set<std::string> names = {"none",   "HUP",  "INT",   "QUIT", "USR1", "USR2",
                                              "ALRM",   "TERM", "CONT",  "TSTP", "URG",  "XCPU",
                                              "VTALRM", "PROF", "WINCH", "IO",   "PWR",  "RTMIN"};
  if (name.starts_with("SIG")) name.erase(0, 3);
  if (names.contains(name)) return true;
  int base = name.starts_with("RTMIN+") ? 34 : 0;
  if (base) name.erase(0, 6);
  if (name.empty() || name.size() > 2 || name.find_first_not_of("0123456789") != std::string::npos)
    return false;
  int number = base + std::stoi(name);
  return number > 0 && number <= 64 && number != SIGKILL && number != SIGSTOP && number != 32 &&
         number != 33;
}

std::string signal_fault(const std::string& text) {
  return is_signal(text)
             ? ""
             : fmt::format("\"{}\" is no signal such as USR1 or RTMIN+3, nor none", text);
}

// Only warns, because the program may make the folder itself.
void warn_if_no_folder(const std::string& folder) {
  struct stat st;
  if (stat(folder.c_str(), &st) != 0)
    complain(
        fmt::format("warning: --files-in-snapshot: {}: {}; nothing of it is in a snapshot "
                    "until it is there",
                    folder, strerror(errno)));
  else if (!S_ISDIR(st.st_mode))
    complain(fmt::format("warning: --files-in-snapshot: {} is no folder", folder));
}

// Makes the paths absolute in "open", or in a list of folders with colons between them.
std::string absolute_folders(const std::string& text) {
  if (text.empty() || text == "0" || text == "1" || text == "open") return text;
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    if (end > at) {
      const std::string folder = absolute(text.substr(at, end - at));
      warn_if_no_folder(folder);
      out += (out.empty() ? "" : ":") + folder;
    }
    at = end + 1;
  }
  return out;
}

// Sets a variable that the environment does not have. In a list of folders our folder comes last or
// first.
void set_unless_given(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 0);
}

void add_folder(const char* name, const std::string& folder, bool first) {
  const char* before = getenv(name);
  if (before && *before) {
    setenv(name, (first ? folder + ":" + before : before + (":" + folder)).c_str(), 1);
  } else {
    setenv(name, folder.c_str(), 1);
  }
}

// Preloading serves programs that ask the loader for libcuda.so.1. These variables serve programs
// that look for the file, and compilers that call `ptxas` for machine code.
void export_simulated(const Options& options) {
  const Installation& own = installation();
  setenv("GPUCKPT_DRIVER", own.sim_driver.c_str(), 1);
  setenv("GPUCKPT_SIM", options.sim.c_str(), 1);
  add_folder("LD_LIBRARY_PATH", own.sim_folder, false);
  set_unless_given("TRITON_LIBCUDA_PATH", own.sim_folder);
  set_unless_given("TRITON_PTXAS_PATH", own.sim_folder + "/ptxas");
  set_unless_given("TRITON_PTXAS_BLACKWELL_PATH", own.sim_folder + "/ptxas");
  if (options.sim != "torch") return;
  add_folder("PYTHONPATH", own.sim_python, true);
  set_unless_given("GEMS_VENDOR", "nvidia");  // without it flag-gems runs nvidia-smi
}

void export_options(const Options& options, const std::string& preload) {
  auto set = [](const char* name, const std::string& value) {
    if (!value.empty()) setenv(name, value.c_str(), 1);
  };
  set("GPUCKPT_STORE", absolute(options.store));
  if (!options.mirror.empty())
    set("GPUCKPT_MIRROR",
        store::is_remote(options.mirror) ? options.mirror : absolute(options.mirror));
  set("GPUCKPT_JOB", options.job);
  set("GPUCKPT_EVERY", options.every);
  set("GPUCKPT_KEEP", options.keep);
  set("GPUCKPT_LEVEL", options.level);
  set("GPUCKPT_FOR", options.purpose);
  set("GPUCKPT_BUDGET", options.budget);
  set("GPUCKPT_SIGNAL", options.signal);
  set("GPUCKPT_ON_TERM", options.on_term);
  set("GPUCKPT_TIMEOUT", options.timeout);
  set("GPUCKPT_CHILDREN", options.children);
  set("GPUCKPT_SOCKETS", options.sockets);
  set("GPUCKPT_USERS", options.users);
  set("GPUCKPT_FILES", absolute_folders(options.files));
  if (!options.status_file.empty()) set("GPUCKPT_STATUS_FILE", absolute(options.status_file));
  if (options.self_contained) set("GPUCKPT_SELF_CONTAINED", "1");
  if (simulated(options.sim)) export_simulated(options);
  unsetenv("GPUCKPT_STARTED_IN");  // the program is the first of its job
  const char* before = getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", (preload + (before && *before ? std::string(":") + before : "")).c_str(), 1);
}

// Snapshots of programs without a job's name are unrelated, unless one is to be resumed.
Status take_job(const Options& options, JobLease* lease) {
  const bool resumes = options.resume != "never";
  if (options.job.empty() && !resumes) return Status::Ok();
  uint64_t wait_ms = 0;
  if (resumes) parse_duration(options.resume_wait, &wait_ms);
  Status status = lease->take({options.store, options.mirror, options.job, wait_ms});
  if (status.ok() || status.code() == kExitLocked) return status;
  complain(fmt::format("warning: nothing keeps another run of this job from starting: {}",
                       status.text()));
  return Status::Ok();
}

Status resume(const Options& options) {
  bool found = false;
  if (Status status =
          resume_job({options.store, options.mirror, options.job, options.status_file}, &found);
      !status.ok() || found) {
    return status;
  }
  const std::string nothing =
      fmt::format("{} has no snapshot of {}", options.store,
                  options.job.empty() ? "a job without a name" : "job \"" + options.job + "\"");
  if (options.resume == "require") return Status::NotFound(nothing + ": not started");
  complain(nothing + ": the program starts from the beginning");
  return Status::Ok();
}

Status run(const Options& options) {
  if (options.command.empty()) {
    return Status(kExitUsage,
                  "no program was given: gpuckpt run [OPTIONS] -- PROGRAM ARGUMENTS...");
  }
  if (options.command[0].starts_with("-")) {
    return Status(kExitUsage,
                  fmt::format("`gpuckpt run` has no option {}: write the program behind --, as in "
                              "gpuckpt run [OPTIONS] -- PROGRAM ARGUMENTS...",
                              options.command[0]));
  }
  if (options.store.empty())
    return Status(kExitUsage, "--store (or GPUCKPT_STORE) is empty: name a directory");
  if (store::is_remote(options.store)) {
    return Status(kExitUsage,
                  "snapshots are written to a directory: --store DIR --mirror " + options.store);
  }
  if (!options.mirror.empty())
    if (Status status = store::check_apart(options.store, options.mirror); !status.ok())
      return status;
  if (Status status = check_files(options); !status.ok()) return status;
  JobLease lease;
  if (Status status = take_job(options, &lease); !status.ok()) return status;
  if (options.resume != "never") {
    if (Status status = resume(options); !status.ok()) return status;
  }
  std::string program = find_program(options.command[0]);
  std::error_code error;
  if (program.empty() && std::filesystem::is_directory(options.command[0], error))
    return Status::NotFound(
        fmt::format("{0} is a folder, not a program (the folder of --files-in-snapshot is written "
                    "behind an equals sign: --files-in-snapshot={0})",
                    options.command[0]));
  if (program.empty()) {
    return Status::NotFound(
        fmt::format("there is no program \"{}\"{}", options.command[0],
                    options.command[0].find('/') == std::string::npos ? " in PATH" : ""));
  }
  std::string preload = installation().library;
  if (preload.find_first_of(" :") != std::string::npos) {
    return Status::Error(fmt::format(
        "the path {} has a space or a colon in it, which LD_PRELOAD cannot express: install "
        "gpuckpt elsewhere",
        preload));
  }
  if (simulated(options.sim))
    preload += ":" + installation().sim_runtime + ":" + installation().sim_compilers;
  if (Status status = check_preloadable(program); !status.ok()) return status;
  if (Status status = check_loads(program, preload, installation().library); !status.ok())
    return status;
  warn_about_store(options.store);
  if (!options.mirror.empty() && !store::is_remote(options.mirror))
    warn_about_store(options.mirror);
  warn_about_files(options);
  warn_about_session_folder();
  warn_about_ids();
  export_options(options, preload);
  std::vector<char*> argv;
  for (const std::string& argument : options.command)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  lease.keep_in_background();
  execv(program.c_str(), argv.data());
  return Status::Error(fmt::format("cannot run {}: {}", program, strerror(errno)));
}

// Options that name the program, and where its snapshots are kept.
void add_store_options(Verb& verb, Options* options) {
  add_sim(verb, &options->sim,
          "Use the simulated GPU; =torch: with operators for PyTorch, whose own are machine code "
          "(needs triton and flag-gems in the program's Python)");
  verb.option("--store", options->store, "Directory of the store; made when absent")
      .env("GPUCKPT_STORE")
      .show_default();
  verb.option("--mirror", options->mirror,
              "A second store, on a slower but safer disk or rclone:REMOTE:PATH, that gets "
              "each snapshot in the background once it is durable in the first")
      .env("GPUCKPT_MIRROR");
  verb.option("--job", options->job, "Name of the job; separates jobs in one store")
      .env("GPUCKPT_JOB");
  verb.option("--every", options->every, "Snapshot at this interval")
      .env("GPUCKPT_EVERY")
      .duration();
  verb.option("--keep", options->keep, "Keep the newest N snapshots of the job")
      .env("GPUCKPT_KEEP")
      .positive();
  verb.option("--budget", options->budget, "The store may not grow beyond this")
      .env("GPUCKPT_BUDGET")
      .size();
  verb.option("--level", options->level,
              "zstd level of stored data, 0: none (default 1); with --for restore from 3 on that "
              "of LZ4")
      .env("GPUCKPT_LEVEL")
      .range(0, 19);
  verb.option("--for", options->purpose,
              "What stored data is compressed for: balanced (the default), restore: what is read "
              "and decoded soonest, size: what is shortest")
      .env("GPUCKPT_FOR")
      .one_of({"balanced", "restore", "size"});
}

// Options that say when snapshots are taken, and what they contain or refuse.
void add_snapshot_options(Verb& verb, Options* options) {
  verb.option("--signal", options->signal,
              "Signal that triggers a snapshot, or none (default USR1)")
      .env("GPUCKPT_SIGNAL")
      .check("SIGNAL", signal_fault);
  verb.option("--on-term", options->on_term,
              "On SIGTERM: snapshot (before the program gets it), or ignore (the default: "
              "nothing of ours happens)")
      .env("GPUCKPT_ON_TERM")
      .one_of({"snapshot", "ignore"});
  add_children(verb, &options->children).env("GPUCKPT_CHILDREN");
  verb.option(
          "--sockets", options->sockets,
          "Connections to processes outside the job come back reset (the default; with a Unix "
          "socket or a pipe there is no snapshot), refuse: there is no snapshot, drop: all come "
          "back closed")
      .env("GPUCKPT_SOCKETS")
      .one_of({"refuse", "reset", "drop"});
  verb.option("--users", options->users,
              "Processes of other users in a job that root runs are part of its snapshots: tell it "
              "(the default: exit 3), refuse: there is no snapshot, trust: it is as you want it")
      .env("GPUCKPT_USERS")
      .one_of({"tell", "refuse", "trust"});
  verb.flag("--self-contained", options->self_contained,
            "Snapshots hold the files that the program maps as well: a restore does not need "
            "them")
      .env("GPUCKPT_SELF_CONTAINED");
  verb.flag("--files-in-snapshot", options->files, "open",
            "Snapshots hold the contents of files that are open for writing, and with "
            "=DIR[:DIR...] of all that is below these folders; a restore puts them back")
      .env("GPUCKPT_FILES");
  verb.option("--timeout", options->timeout, "Give a snapshot up after this (default 60s)")
      .env("GPUCKPT_TIMEOUT")
      .duration();
}

// Options that say how the program continues from a snapshot, and where the outcome is reported.
void add_resume_options(Verb& verb, Options* options) {
  verb.option("--resume", options->resume,
              "auto: continue from the job's newest snapshot, in the store or else in its mirror, "
              "when there is one; require: the same, and fail (10) when there is none")
      .env("GPUCKPT_RESUME")
      .one_of({"auto", "require", "never"})
      .show_default();
  verb.option("--resume-wait", options->resume_wait,
              "With --resume auto or require: how long to wait for the end of a run of the job "
              "that is still alive; then fail (11)")
      .env("GPUCKPT_RESUME_WAIT")
      .duration()
      .show_default();
  verb.option("--status-file", options->status_file,
              "Where failures and snapshots are reported (JSON)")
      .env("GPUCKPT_STATUS_FILE");
}

}  // namespace

void define_run(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  options->store = "gpuckpt.store";
  Verb verb = line.verb("run", "Start a program so that it can be snapshotted");

  add_store_options(verb, options.get());
  add_snapshot_options(verb, options.get());
  add_resume_options(verb, options.get());
  verb.prefix_command();
  verb.footer(
      "Usage: gpuckpt run [OPTIONS] -- PROGRAM ARGUMENTS...\n"
      "Ends as the program ends. Failures of its own end with 125 and their class is in\n"
      "--status-file: 10 with --resume require when there is no snapshot, 11 when the job is "
      "running already.\n" +
      exit_codes({kExitUsage, kExitAbsent, kExitLocked, kExitLauncher}));
  verb.callback([verb, options, context] {
    end_on_signals_as_first_process();
    options->command = verb.remaining();
    options->command.insert(options->command.end(), context->command.begin(),
                            context->command.end());
    context->run([&] {
      Status status = run(*options);
      write_status_file(options->status_file, status);
      if (status.code() == kExitUsage || status.ok()) return status;
      return Status(kExitLauncher, status.text());
    });
  });
}

}  // namespace gpuckpt::cli
