// gpuckpt export and import: one snapshot as a single stream; mirror: all of them, as files.
//   gpuckpt export STORE@ID | ssh host gpuckpt import STORE

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/new_file.h"
#include "process/store_owner.h"
#include "progress.h"
#include "store/store.h"
#include "stores/made_store.h"
#include "stores/mirror_status.h"
#include "verb.h"

namespace gpuckpt::cli {
namespace {

struct Options {
  std::string reference, store, file, target;
  bool status = false;
};

Status export_one(const Options& options) {
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::SnapshotReader> reader;
  Status status =
      store::open_reference(options.reference, {.any_owner = any_owner()}, &store, &reader);
  if (!status.ok()) return status;
  int fd = 1;
  NewFile file;
  const std::string subject = options.file.empty() ? "standard output" : options.file;
  auto failed = [&](long error) {
    return Status::Error(fmt::format(
        "cannot write the stream to {}: {}", subject,
        error == ENOENT ? "there is no such folder" : strerror(static_cast<int>(error))));
  };
  if (!options.file.empty()) {
    if (long error = file.create(options.file.c_str(), NewFile::kPrivate)) return failed(-error);
    fd = file.fd();
  } else if (isatty(1)) {
    return Status(
        kExitUsage,
        "a snapshot is not for a terminal: use -o FILE, or pipe it into `gpuckpt import STORE`");
  }
  signal(SIGPIPE, SIG_IGN);
  Progress progress;
  uint64_t sent = 0;
  int error = 0;
  status = store::export_snapshot(*reader, [&](std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      ssize_t n = write(fd, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        error = errno;
        return false;
      }
      sent += static_cast<uint64_t>(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    progress.show(fmt::format("exported {}", store::show_size(sent)));
    return true;
  });
  progress.clear();
  if (error) return failed(error);
  if (fd != 1 && status.ok())
    if (long r = file.publish(true)) return failed(-r);
  if (status.ok()) print(stderr, "{} exported, {}\n", reader->id(), store::show_size(sent));
  return status;
}

Status import_one(const Options& options, Context* context) {
  int fd = 0;
  if (!options.file.empty()) {
    fd = open(options.file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      return Status(errno == ENOENT ? kExitAbsent : kExitError,
                    fmt::format("cannot open {}: {}", options.file, strerror(errno)));
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
      return Status::Error(
          fmt::format("{} is a folder, and no stream that `gpuckpt export` has "
                      "written",
                      options.file));
  } else if (isatty(0)) {
    return Status(kExitUsage, "nothing comes in: gpuckpt export STORE@ID | gpuckpt import STORE");
  }
  Status status = become_owner_of(options.store);
  if (!status.ok()) return status;
  const MadeStore made(options.store);
  std::unique_ptr<store::Store> store;
  status = store::Store::open(options.store, {.create = true, .any_owner = any_owner()}, &store);
  if (!status.ok()) return status;
  Progress progress;
  uint64_t got = 0;
  store::CommitResult result;
  status = store::import_snapshot(
      *store, {},
      [&](std::span<uint8_t> bytes) {
        while (!bytes.empty()) {
          ssize_t n = read(fd, bytes.data(), bytes.size());
          if (n < 0 && errno == EINTR) continue;
          if (n <= 0) return false;
          got += static_cast<uint64_t>(n);
          bytes = bytes.subspan(static_cast<size_t>(n));
        }
        progress.show(fmt::format("imported {}", store::show_size(got)));
        return true;
      },
      &result);
  progress.clear();
  if (!status.ok()) {
    made.discard();
    return status;
  }
  if (context->json) {
    print_json(nlohmann::json({{"id", result.id},
                               {"new_bytes", result.new_bytes},
                               {"stored_bytes", result.stored_bytes}}));
  } else {
    print("{}\n", result.id);
  }
  print(stderr, "imported {}, {} of it new to the store\n", store::show_size(result.logical_bytes),
        store::show_size(result.new_bytes));
  return Status::Ok();
}

Status show_mirror(store::Store& store, Context* context) {
  const std::unique_ptr<MirrorStatus> mirror = mirror_status(store);
  if (!mirror) return Status::NotFound(store.path() + " was never mirrored");
  if (context->json) {
    print_json(to_json(*mirror));
  } else {
    print("{}\n", describe(*mirror));
  }
  if (!mirror->current()) context->exit_code = kExitWarnings;
  return Status::Ok();
}

Status mirror(const Options& options, Context* context) {
  std::unique_ptr<store::Store> store;
  Status status = become_owner_of(options.store);
  if (!status.ok()) return status;
  status = store::Store::open(options.store, {.any_owner = any_owner()}, &store);
  if (!status.ok()) return status;
  if (options.status) return show_mirror(*store, context);
  if (options.target.empty())
    return Status(kExitUsage, "no target was given: gpuckpt mirror STORE TARGET");
  store::MirrorReport report;
  status = store->mirror(options.target, &report);
  for (const auto& [id, why] : report.damaged)
    complain(fmt::format("{} stays behind: {}", id, why));
  if (!status.ok()) return status;
  if (context->json) {
    nlohmann::json damaged = nlohmann::json::array();
    for (const auto& [id, why] : report.damaged) damaged.push_back({{"id", id}, {"why", why}});
    print_json(nlohmann::json({{"target", options.target},
                               {"snapshots", report.snapshots},
                               {"files", report.files},
                               {"bytes", report.bytes},
                               {"damaged", damaged}}));
  } else {
    print("{} snapshot{} copied, {}\n", report.snapshots, report.snapshots == 1 ? "" : "s",
          store::show_size(report.bytes));
  }
  if (!report.damaged.empty()) context->exit_code = kExitCorrupt;
  return Status::Ok();
}

}  // namespace

void define_export(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("export", "Write one snapshot as a self-contained stream");
  verb.option("STORE[@ID]", options->reference, "The snapshot").required();
  verb.option("-o,--output", options->file, "File to write, 0600; otherwise stdout");
  verb.footer(exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitIncompatible,
                          kExitCorrupt, kExitRefused}));
  verb.callback([options, context] { context->run([&] { return export_one(*options); }); });
}

void define_import(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb("import", "Read such a stream into a store; prints the snapshot's id");
  add_store(verb, &options->store);
  verb.option("-i,--input", options->file, "File to read; otherwise stdin");
  add_json(verb, context);
  verb.footer("The snapshot keeps its id. 11: the store has it already, or is being pruned.\n" +
              exit_codes({kExitOk, kExitError, kExitUsage, kExitAbsent, kExitLocked,
                          kExitIncompatible, kExitCorrupt, kExitRefused}));
  verb.callback(
      [options, context] { context->run([&] { return import_one(*options, context); }); });
}

void define_mirror(CommandLine& line, Context* context) {
  auto options = std::make_shared<Options>();
  Verb verb = line.verb(
      "mirror", "Copy what a second store does not have yet; go on where it was interrupted");
  verb.option("STORE", options->store, "The store").required();
  verb.option("TARGET", options->target, "Its mirror: a directory, or rclone:REMOTE:PATH")
      .env("GPUCKPT_MIRROR");
  verb.flag("--status", options->status,
            "Only say what has reached the mirror, what is behind, and the last error; ends with 3 "
            "unless the mirror has all");
  add_json(verb, context);
  verb.footer(
      "A mirror is a store like any other, with the same key: list, verify, restore and prune it.\n"
      "It keeps what its source prunes. What is damaged in it comes back by `gpuckpt repair "
      "TARGET` "
      "and mirroring again;\nwhat is damaged in the store by `gpuckpt repair STORE` and `gpuckpt "
      "mirror TARGET STORE`. 11: another mirroring is at work.\n" +
      exit_codes({kExitOk, kExitError, kExitUsage, kExitWarnings, kExitAbsent, kExitLocked,
                  kExitIncompatible, kExitCorrupt, kExitRefused}));
  verb.callback([options, context] { context->run([&] { return mirror(*options, context); }); });
}

}  // namespace gpuckpt::cli
