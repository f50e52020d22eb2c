// gpuckpt-writer: the process that owns the store while one snapshot is written
// (include/gpuckpt/wire.h).
//
// The library starts it, and no process waits for it. It turns the data that the application and
// its copy-on-write child put into the ring into chunks; when both have sent kMsgEnd the snapshot
// is published, whether or not they are still alive. A process that disconnects before its kMsgEnd
// makes the snapshot fail.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "gpuckpt/wire.h"
#include "messages.h"
#include "page_cache.h"
#include "restore/files/file_keeper.h"
#include "restore/files/file_sums.h"
#include "restore/files/files_blob.h"
#include "restore/image/image.h"
#include "restore/preflight/preflight.h"
#include "ring.h"
#include "store/format/member.h"
#include "store/format/sizes.h"
#include "store/format/wire_slot.h"
#include "store/io/json_text.h"
#include "store/io/memory.h"
#include "store/io/printable.h"
#include "store/io/remote.h"
#include "store/store.h"
#include "workers.h"

namespace gpuckpt::writer {
namespace {

using store::Status;

// What a process says of itself. Names of files and arguments of commands may be any bytes, and
// JSON is UTF-8.
nlohmann::json description_in(const wire::Msg& message) {
  return store::parse_json(store::replace_invalid_utf8(store::message_text(message)));
}

struct Source {
  std::string name;
  int fd = -1;
  bool ended = false;  // it has sent kMsgEnd, or does not exist
};

// A process of the job. Number 0 is the first one, whose library started us.
struct Member {
  uint32_t number = 0;
  Ring ring;
  Source sources[2];  // the process itself, and its copy
  bool greeted = false;
  nlohmann::json hello;
  int64_t pid = 0;
  std::vector<uint8_t> process;     // its blob of that name, for the preflight
  uint64_t bytes = 0;               // captured of it, zeros included
  bool lost = false, gone = false;  // disconnected; the first process says that this is expected
};

// Makes this process the first that the kernel ends when memory runs out, because the program did
// not cause the need.
void offer_to_oom_killer() {
  if (FILE* file = fopen("/proc/self/oom_score_adj", "we")) {
    fputs("1000", file);
    fclose(file);
  }
}

class Job {
 public:
  explicit Job(const Arguments& arguments) : arguments_(arguments), first_(add_member(0)) {
    first_.sources[0] = {"the application", arguments.parent, false};
    first_.sources[1] = {"its copy", arguments.child, arguments.child < 0};
  }

  int run() {
    Status status = first_.ring.map(arguments_.ring);
    if (status.ok()) status = store::guarded([this] { return work(); });
    workers_.stop();
    if (status.ok()) return kExitOk;
    wire::Msg failed = make(wire::kMsgFailed, status.text());
    failed.code = status.code();
    failed.slot = retry_;
    writer_.reset();  // removes temporary files before any process is told
    for (auto& member : members_) {
      member->ring.give_up();
      for (Source& source : member->sources) {
        send(source.fd, failed);
        hang_up(source.fd);
      }
    }
    return status.code();
  }

 private:
  Status work() {
    if (Status status = greet(); !status.ok()) return status;
    if (Status status = workers_.start(arguments_.memory, program_waits()); !status.ok())
      return status;
    if (Status status = collect(); !status.ok()) return status;
    if (Status status = workers_.wait(); !status.ok()) return status;
    if (Status status = add_files(); !status.ok()) return status;
    store::CommitResult result;
    description_["stats"] = stats_;
    std::string text = description_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::string warnings;
    auto check = [&](const store::SnapshotReader& snapshot) {
      return check_restorable(snapshot, &warnings);
    };
    if (Status status = writer_->commit(text, check, &result); !status.ok()) return status;
    add_warnings(result.warning, &warnings);
    wire::Msg durable = make(wire::kMsgDurable, result.id + warnings);
    durable.code = warnings.empty() ? kExitOk : kExitWarnings;
    durable.logical_bytes = result.logical_bytes;
    durable.new_bytes = result.new_bytes;
    durable.stored_bytes = result.stored_bytes;
    durable.zero_bytes = result.zero_bytes;
    writer_.reset();
    tell_successors();
    for (auto& member : members_) send(member->sources[0].fd, durable);
    // Mirrors first, so that the mirror has what is pruned below. Best effort: the store records
    // the result, and the next mirroring catches up.
    if (!arguments_.mirror.empty()) {
      setpriority(PRIO_PROCESS, 0, 10);
      store::MirrorReport report;
      (void)store_->mirror(arguments_.mirror, &report);
    }
    if (arguments_.keep > 0) {
      store::PruneOptions prune;
      prune.keep = arguments_.keep;
      store::PruneReport report;
      // Best effort: the snapshot is durable, and the next prune catches up.
      (void)store_->prune(prune, &report);
    }
    return Status::Ok();
  }

  // Refuses a snapshot that no machine could restore. What this machine could not restore is
  // reported: `warnings`, a line for each. A snapshot without the description of a process holds
  // memory alone, so there is nothing to restore.
  static Status check_restorable(const store::SnapshotReader& snapshot, std::string* warnings) {
    const std::vector<std::string> blobs = snapshot.blobs();
    if (std::find(blobs.begin(), blobs.end(), "process") == blobs.end()) return Status::Ok();
    restore::Options options;
    options.running = true;
    restore::Preflight found;
    if (Status s = restore::preflight(snapshot, options, &found); !s.ok()) return s;
    if (!found.never.empty())
      return Status::Refused("the snapshot could not be restored: " +
                             fmt::format("{}", fmt::join(found.never, "; ")));
    for (const std::string& text : found.here)
      *warnings += "\nthis machine could not restore the snapshot: " + text;
    for (const std::string& text : found.differs) *warnings += "\n" + text;
    return Status::Ok();
  }

  Status greet() {
    wire::Msg hello;
    pollfd p{first_.sources[0].fd, POLLIN, 0};
    int ready;
    do ready = poll(&p, 1, 60'000);
    while (ready < 0 && errno == EINTR);
    int got = ready > 0 ? receive(first_.sources[0].fd, &hello) : 0;
    if (got == 0) return Status::Error("the application went away before it said hello");
    if (got < 0 || hello.type != wire::kMsgHello) {
      return Status::Error("library and writer are of different builds: reinstall gpuckpt");
    }
    description_ = description_in(hello);
    if (!description_.is_object())
      return Status::Error("the library's description of the process is not JSON");
    store::Store::Options options;
    options.create = true;
    options.any_owner = getenv("GPUCKPT_ANY_OWNER") != nullptr;
    options.key_file = arguments_.key_file;
    options.mirror = arguments_.mirror;
    if (Status status = store::Store::open(arguments_.store, options, &store_); !status.ok())
      return status;
    if (description_.contains("parent") && description_["parent"].is_string())
      arguments_.write.parent = description_["parent"].get<std::string>();
    arguments_.write.run = store::json_text(description_, "run");
    arguments_.write.run_pid = static_cast<int64_t>(store::json_number(description_, "pid"));
    arguments_.write.page_cache = room_in_page_cache(arguments_);
    arguments_.write.lock_wait_ms = 10'000;  // a prune is short; the application keeps running
    if (Status status = store_->begin(arguments_.write, &writer_); !status.ok()) return status;
    first_.pid = static_cast<int64_t>(store::json_number(description_, "pid"));
    if (Status status = prepare_files(); !status.ok()) return status;
    send(first_.sources[0].fd, ready_message(writer_->parent()));
    first_.greeted = true;
    return Status::Ok();
  }

  // The answer to a hello.
  wire::Msg ready_message(const std::string& parent) const {
    wire::Msg message = make(wire::kMsgReady, parent);
    if (const HashKey* key = store_->names()->key()) {
      message.keyed = 1;
      memcpy(message.name_key, key->byte, sizeof(message.name_key));
    }
    return message;
  }

  // Tells a run that waits to take the job over that this was the last snapshot, so that it need
  // not wait for another.
  void tell_successors() {
    using Life = store::Lease::Life;
    store::Lease lease;
    const bool last = description_.value("last", false);
    if (!store_->job_lease(arguments_.write.job, &lease).ok() ||
        lease.run != arguments_.write.run || lease.life == Life::kNone ||
        last == (lease.life == Life::kLeaving))
      return;
    (void)store_->leave_job(lease, last ? Life::kLeaving : Life::kLive);
  }

  // --- files that the program writes

  // Called before the program is disturbed.
  Status prepare_files() {
    sums_.look(first_.pid);
    const char* wanted = getenv("GPUCKPT_FILES");
    if (!wanted || !*wanted || strcmp(wanted, "0") == 0) return Status::Ok();
    keeper_ = std::make_unique<restore::FileKeeper>(restore::folders_in(wanted), arguments_.store);
    constexpr uint64_t kPatienceMs = 20'000;  // the application waits 30 s for kMsgReady
    return keeper_->prepare(processes(), restore::stored_files(parent_files()), kPatienceMs);
  }

  std::vector<int64_t> processes() const {
    std::vector<int64_t> out;
    for (const auto& member : members_)
      if (member->pid && !member->gone) out.push_back(member->pid);
    return out;
  }

  // The files blob of the parent snapshot; empty where there is none.
  const nlohmann::json& parent_files() {
    std::unique_ptr<store::SnapshotReader> reader;
    if (parent_files_.is_null()) {
      parent_files_ = nlohmann::json::object();
      if (!writer_->parent().empty() && store_->open_snapshot(writer_->parent(), &reader).ok())
        parent_files_ = restore::read_files_blob(*reader);
    }
    return parent_files_;
  }

  // Called while all processes of the job are parked.
  Status take_files() {
    if (!keeper_)
      return Status::Error("files are to be stored, but the list of folders is missing");
    const auto begin = std::chrono::steady_clock::now();
    if (Status status = keeper_->take(processes()); !status.ok()) return status;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    stats_["files"] = keeper_->files().size();
    stats_["files_copied_bytes"] = keeper_->taken_bytes();
    stats_["files_ms"] = took.count();
    send(
        first_.sources[0].fd,
        make(wire::kMsgFilesTaken,
             fmt::format(
                 "{} files are in the snapshot, {} of them copied while the program was stopped, "
                 "in {} ms",
                 keeper_->files().size(), store::show_size(keeper_->taken_bytes()), took.count())));
    return Status::Ok();
  }

  // Adds other warnings about a published snapshot, each on a line of its own.
  void add_warnings(const std::string& of_the_line, std::string* warnings) const {
    if (!of_the_line.empty()) *warnings += "\n" + of_the_line;
    for (const std::string& path : in_place_)
      *warnings += fmt::format(
          "\n{} is overwritten in place: when it changes again, a restore is refused; "
          "--files-in-snapshot keeps its contents",
          path);
  }

  // Adds the facts about files that a restore needs, and their contents.
  Status add_files() {
    std::vector<restore::Image> images;
    for (auto& member : members_) {
      if (member->gone || member->process.empty()) continue;
      // A blob that cannot be parsed is no description of a process: it is a test's, or another
      // build's.
      restore::Image image;
      if (restore::parse_image(std::move(member->process), &image).ok())
        images.push_back(std::move(image));
    }
    nlohmann::json files = nlohmann::json::object();
    std::set<std::string> stored;
    if (keeper_ && keeper_->taken()) {
      if (Status status = keeper_->store(*writer_); !status.ok()) return status;
      for (const restore::StoredFile& file : keeper_->files()) {
        files["stored"].push_back(restore::to_json(file));
        stored.insert(file.path);
      }
      for (const std::string& folder : keeper_->folders())
        files["folders"].push_back(restore::name_to_json(folder));
      files["left_out"].push_back(restore::name_to_json(arguments_.store));
    }
    for (const restore::SummedFile& file : sums_.sum(images, restore::summed_files(parent_files()),
                                                     description_.value("stop", false)))
      if (!stored.count(file.path)) {
        files["summed"].push_back(restore::to_json(file));
        if (file.in_place) in_place_.push_back(file.path);
      }
    if (files.empty()) return Status::Ok();
    const std::string text = files.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return writer_->append_blob("files",
                                {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }

  Member& add_member(uint32_t number) {
    members_.push_back(std::make_unique<Member>());
    members_.back()->number = number;
    return *members_.back();
  }

  // Adds a process that the first one announces.
  Status join(uint32_t number, const int (&fds)[3]) {
    if (number == 0 || number >= wire::kMaxMembers || fds[0] < 0)
      return Status::Error("a process of the job came without what it needs");
    for (auto& member : members_)
      if (member->number == number)
        return Status::Error("two processes of the job have one number");
    Member& member = add_member(number);
    member.sources[0] = {fmt::format("process {} of the job", number), fds[1], false};
    member.sources[1] = {fmt::format("the copy of process {} of the job", number), fds[2], false};
    Status status = member.ring.map(fds[0]);
    close(fds[0]);
    return status;
  }

  // Answers a member's hello as the first one's.
  Status greet_member(Member& member, const wire::Msg& message) {
    nlohmann::json hello = description_in(message);
    if (!hello.is_object())
      return Status::Error("a process of the job describes itself in no JSON");
    std::string parent = store::json_text(hello, "parent");
    if (parent != writer_->parent()) parent.clear();
    hello["number"] = member.number;
    member.pid = static_cast<int64_t>(store::json_number(hello, "pid"));
    sums_.look(member.pid);
    member.hello = std::move(hello);
    member.greeted = true;
    send(member.sources[0].fd, ready_message(parent));
    return Status::Ok();
  }

  static Status ended_early(const Source& source) {
    return Status::Error(fmt::format("{} ended before everything was captured", source.name));
  }

  Status all_there() {
    for (auto& member : members_) {
      if (member->lost && !member->gone) {
        retry_ = wire::kFailedMember;
        return ended_early(member->sources[0]);
      }
      if (!member->number || member->gone) continue;
      member->hello["logical_bytes"] = member->bytes;
      description_["members"].push_back(member->hello);
    }
    return Status::Ok();
  }

  Status collect() {
    for (;;) {
      std::vector<pollfd> polls;
      std::vector<std::pair<Member*, Source*>> whose;
      for (auto& member : members_)
        for (Source& source : member->sources)
          if (!source.ended) {
            polls.push_back({source.fd, POLLIN, 0});
            whose.emplace_back(member.get(), &source);
          }
      if (polls.empty()) return all_there();
      int n = poll(polls.data(), polls.size(), 1000);
      if (n < 0 && errno != EINTR) return store::io_error("wait for", "the application", errno);
      if (Status status = workers_.failure(); !status.ok()) return status;
      for (size_t i = 0; i < polls.size(); ++i) {
        if (n <= 0 || polls[i].revents == 0) continue;
        if (Status status = take(*whose[i].first, *whose[i].second); !status.ok()) return status;
      }
    }
  }

  Status take(Member& member, Source& source) {
    wire::Msg message;
    int passed[3] = {-1, -1, -1};
    int got = receive(source.fd, &message, passed);
    if (got == 0 && member.number) {
      member.lost = source.ended = true;
      return Status::Ok();
    }
    if (got == 0) return ended_early(source);
    if (got < 0) return Status::Error(fmt::format("a malformed message came from {}", source.name));
    Ring& ring = member.ring;
    switch (message.type) {
      case wire::kMsgMember:
        return join(message.slot, passed);
      case wire::kMsgGone:
        for (auto& other : members_)
          if (other->number && other->number == message.slot)
            other->gone = other->sources[0].ended = other->sources[1].ended = true;
        return Status::Ok();
      case wire::kMsgFiles:
        if (member.number) break;
        return take_files();
      case wire::kMsgHello:
        if (member.greeted) break;
        return greet_member(member, message);
      case wire::kMsgData:
        if (Status status = check_slot(message.slot); !status.ok()) return status;
        member.bytes += store::covered_by_slot(ring.slot(message.slot));
        store_slot(&member, message.slot);
        return Status::Ok();
      case wire::kMsgBlob: {
        if (Status status = check_slot(message.slot); !status.ok()) return status;
        std::string name = store::member_blob(store::message_text(message), member.number);
        const bool process = store::message_text(message) == "process";
        Status status = store::put_slot_blob(ring.slot(message.slot), name, *writer_,
                                             process ? &member.process : nullptr);
        ring.free(message.slot);
        return status;
      }
      case wire::kMsgEnd:
        source.ended = true;
        if (message.text_bytes && member.number == 0) {
          const auto j = description_in(message);
          if (j.is_object()) stats_.update(j);
        }
        return Status::Ok();
      case wire::kMsgAbort:
        retry_ = member.number != 0 ? wire::kFailedMember : message.slot;
        return Status::Error(
            fmt::format("{} gave up: {}", source.name, store::message_text(message)));
      default:
        break;
    }
    return Status::Error(
        fmt::format("{} sent a message of unknown type {}", source.name, message.type));
  }

  static Status check_slot(uint32_t slot) {
    if (slot < wire::kRingSlots) return Status::Ok();
    return Status::Error("a message names a slot that does not exist");
  }

  void store_slot(Member* member, uint32_t slot) {
    workers_.add([this, member, slot](bool skip) {
      const Status status =
          skip ? Status::Ok() : store::put_slot(member->ring.slot(slot), *writer_, member->number);
      member->ring.free(slot);
      return status;
    });
  }

  // The program stands, or is about to be killed, until the snapshot is durable.
  bool program_waits() const {
    return description_.value("stop", false) || store::json_text(description_, "reason") == "term";
  }

  Arguments arguments_;
  std::vector<std::unique_ptr<Member>> members_;
  Member& first_;
  nlohmann::json description_, stats_ = nlohmann::json::object();
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<store::SnapshotWriter> writer_;
  restore::FileSums sums_;
  std::unique_ptr<restore::FileKeeper> keeper_;
  nlohmann::json parent_files_;  // null: not read yet
  std::vector<std::string> in_place_;

  uint32_t retry_ = 0;  // kFailedMember or kFailedForNow: why another attempt may succeed
  Workers workers_;
};

// Answers a library whose variables cannot be parsed, because it waits for an answer.
void refuse(int parent, const Status& status) {
  wire::Msg failed = make(wire::kMsgFailed, status.text());
  failed.code = status.code();
  // A socket closed with an unread hello gives the library an error instead of the message.
  wire::Msg hello;
  pollfd p{parent, POLLIN, 0};
  if (poll(&p, 1, 10'000) > 0) (void)!recv(parent, &hello, sizeof(hello), 0);
  send(parent, failed);
}

int run(int argc, char** argv) {
  Arguments arguments;
  if (Status status = parse(argc, argv, &arguments); !status.ok()) {
    if (arguments.parent >= 0)
      refuse(arguments.parent, status);
    else
      fprintf(stderr,
              "gpuckpt-writer is started by libgpuckpt.so, not by hand:\n"
              "  gpuckpt-writer --store DIR --ring FD --parent FD [--child FD] [--job ID] [--level "
              "N] [--keep N] [--budget SIZE] [--budget-action prune|refuse] [--key-file FILE] "
              "[--memory BYTES]\n");
    return kExitUsage;
  }
  become_user(arguments);
  make_absolute(&arguments);
  offer_to_oom_killer();
  stand_alone(arguments);
  if (chdir("/") != 0) return kExitError;
  return Job(arguments).run();
}

}  // namespace
}  // namespace gpuckpt::writer

int main(int argc, char** argv) { return gpuckpt::writer::run(argc, argv); }
