// gpuckpt-writer: the process that owns the store while one snapshot is written
// (include/gpuckpt/wire.h).
//
// The library starts it, nobody waits for it. What the application and its copy-on-write child put
// into the ring becomes chunks here; when both have said kMsgEnd the snapshot is published, whether
// or not they are still alive. Who goes away before its kMsgEnd takes the snapshot with it.

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gpuckpt/wire.h"
#include "store/map.h"
#include "store/remote.h"
#include "store/sizes.h"
#include "store/store.h"

namespace gpuckpt {
namespace {

using store::Status;

struct Arguments {
  std::string store, key_file, mirror;
  int ring = -1, parent = -1, child = -1;
  int keep = -1;
  store::WriteOptions write;
};

// --- the ring
// ------------------------------------------------------------------------------------------------------

class Ring {
 public:
  Status map(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0 || static_cast<uint64_t>(st.st_size) < wire::kRingBytes) {
      return Status::Error(
          "the ring is not as large as this writer expects (library and writer of different "
          "builds?)");
    }
    void* at = mmap(nullptr, wire::kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return store::io_error("map", "the ring", errno);
    base_ = static_cast<uint8_t*>(at);
    if (header()->magic != wire::kMagic || header()->version != wire::kWireVersion) {
      return Status::Error("library and writer are of different builds: reinstall gpuckpt");
    }
    return Status::Ok();
  }
  wire::RingHeader* header() { return reinterpret_cast<wire::RingHeader*>(base_); }
  const wire::SlotHeader* slot(uint32_t i) {
    return reinterpret_cast<wire::SlotHeader*>(base_ + wire::kRingHeaderBytes +
                                               i * wire::kSlotBytes);
  }
  uint8_t* payload(uint32_t i) {
    return base_ + wire::kRingHeaderBytes + i * wire::kSlotBytes + wire::kSlotHeaderBytes;
  }
  void free(uint32_t i) {
    header()->state[i].store(wire::kSlotFree, std::memory_order_release);
    wake();
  }
  void give_up() {
    if (!base_) return;
    header()->writer_dead = 1;
    wake();
  }

 private:
  void wake() {
    ++header()->freed;
    syscall(SYS_futex, &header()->freed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  uint8_t* base_ = nullptr;
};

// --- the sources
// -----------------------------------------------------------------------------------------------------

struct Source {
  const char* name;
  int fd;
  bool ended;  // said kMsgEnd, or does not exist
};

void send(int fd, const wire::Msg& message) {
  if (fd < 0) return;
  while (::send(fd, &message, sizeof(message), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

wire::Msg make(uint32_t type, const std::string& text = "") {
  wire::Msg message{};
  message.magic = wire::kMagic;
  message.version = wire::kWireVersion;
  message.type = type;
  message.text_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof(message.text) - 1));
  memcpy(message.text, text.data(), message.text_bytes);
  return message;
}

// Closing a socket with unread messages in it would reset the connection, and the other side would
// lose our last word.
void hang_up(int fd) {
  if (fd < 0) return;
  shutdown(fd, SHUT_RD);
  wire::Msg unread;
  while (recv(fd, &unread, sizeof(unread), MSG_DONTWAIT) > 0) {
  }
}

std::string text_of(const wire::Msg& message) {
  return {message.text, std::min<size_t>(message.text_bytes, sizeof(message.text))};
}

// 1: a message, 0: the other side is gone, -1: not a message of ours
int receive(int fd, wire::Msg* message) {
  ssize_t n;
  do n = recv(fd, message, sizeof(*message), 0);
  while (n < 0 && errno == EINTR);
  if (n <= 0) return 0;
  size_t text_at = offsetof(wire::Msg, text);
  bool ours = static_cast<size_t>(n) >= text_at && message->magic == wire::kMagic &&
              message->version == wire::kWireVersion &&
              message->text_bytes <= static_cast<size_t>(n) - text_at;
  return ours ? 1 : -1;
}

// --- the work
// --------------------------------------------------------------------------------------------------------

class Job {
 public:
  explicit Job(const Arguments& arguments)
      : arguments_(arguments),
        sources_{{"the application", arguments.parent, false},
                 {"its copy", arguments.child, arguments.child < 0}} {}

  int run() {
    Status status = ring_.map(arguments_.ring);
    if (status.ok()) status = work();
    stop_workers();
    if (status.ok()) return kExitOk;
    ring_.give_up();
    wire::Msg failed = make(wire::kMsgFailed, status.text());
    failed.code = status.code();
    writer_.reset();  // temporary files are gone before anybody hears of it
    for (Source& source : sources_) {
      send(source.fd, failed);
      hang_up(source.fd);
    }
    return status.code();
  }

 private:
  Status work() {
    if (Status status = greet(); !status.ok()) return status;
    start_workers();
    if (Status status = collect(); !status.ok()) return status;
    if (Status status = drain(); !status.ok()) return status;
    store::CommitResult result;
    description_["stats"] = stats_;
    std::string text = description_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (Status status = writer_->commit(text, &result); !status.ok()) return status;
    wire::Msg durable = make(wire::kMsgDurable, result.id);
    durable.logical_bytes = result.logical_bytes;
    durable.new_bytes = result.new_bytes;
    durable.stored_bytes = result.stored_bytes;
    durable.zero_bytes = result.zero_bytes;
    writer_.reset();
    send(sources_[0].fd, durable);
    // First: what is pruned below is in the mirror then. Best effort as well: it says in the store
    // how it went, and whoever mirrors next catches up.
    if (!arguments_.mirror.empty()) {
      setpriority(PRIO_PROCESS, 0, 10);
      store::MirrorReport report;
      (void)store_->mirror(arguments_.mirror, &report);
    }
    if (arguments_.keep > 0) {
      store::PruneOptions prune;
      prune.keep = arguments_.keep;
      store::PruneReport report;
      // Best effort: the snapshot is durable, and whoever prunes next catches up.
      (void)store_->prune(prune, &report);
    }
    return Status::Ok();
  }

  Status greet() {
    wire::Msg hello;
    pollfd p{sources_[0].fd, POLLIN, 0};
    int ready;
    do ready = poll(&p, 1, 60'000);
    while (ready < 0 && errno == EINTR);
    int got = ready > 0 ? receive(sources_[0].fd, &hello) : 0;
    if (got == 0) return Status::Error("the application went away before it said hello");
    if (got < 0 || hello.type != wire::kMsgHello) {
      return Status::Error("library and writer are of different builds: reinstall gpuckpt");
    }
    description_ = nlohmann::json::parse(text_of(hello), nullptr, false);
    if (!description_.is_object())
      return Status::Error("the library's description of the process is not JSON");
    store::Store::Options options;
    options.create = true;
    options.any_owner = getenv("GPUCKPT_ANY_OWNER") != nullptr;
    options.key_file = arguments_.key_file;
    if (Status status = store::Store::open(arguments_.store, options, &store_); !status.ok())
      return status;
    if (description_.contains("parent") && description_["parent"].is_string())
      arguments_.write.parent = description_["parent"].get<std::string>();
    arguments_.write.lock_wait_ms = 10'000;  // a prune is short; the application goes on meanwhile
    if (Status status = store_->begin(arguments_.write, &writer_); !status.ok()) return status;
    send(sources_[0].fd, make(wire::kMsgReady, writer_->parent()));
    return Status::Ok();
  }

  Status collect() {
    while (!sources_[0].ended || !sources_[1].ended) {
      pollfd polls[2];
      for (int i = 0; i < 2; ++i) polls[i] = {sources_[i].ended ? -1 : sources_[i].fd, POLLIN, 0};
      int n = poll(polls, 2, 1000);
      if (n < 0 && errno != EINTR) return store::io_error("wait for", "the application", errno);
      if (Status status = failure(); !status.ok()) return status;
      for (int i = 0; i < 2; ++i) {
        if (n <= 0 || polls[i].revents == 0) continue;
        if (Status status = take(sources_[i]); !status.ok()) return status;
      }
    }
    return Status::Ok();
  }

  Status take(Source& source) {
    wire::Msg message;
    int got = receive(source.fd, &message);
    if (got == 0)
      return Status::Error(fmt::format("{} ended before everything was captured", source.name));
    if (got < 0) return Status::Error(fmt::format("a malformed message came from {}", source.name));
    switch (message.type) {
      case wire::kMsgData:
        if (Status status = check_slot(message.slot, false); !status.ok()) return status;
        enqueue(message.slot);
        return Status::Ok();
      case wire::kMsgBlob: {
        if (Status status = check_slot(message.slot, true); !status.ok()) return status;
        uint64_t length =
            std::min(ring_.slot(message.slot)->payload_bytes, wire::kSlotPayloadBytes);
        Status status =
            writer_->append_blob(text_of(message), {ring_.payload(message.slot), length});
        ring_.free(message.slot);
        return status;
      }
      case wire::kMsgHave: {
        if (Status status = check_slot(message.slot, true); !status.ok()) return status;
        answer(message.slot);
        send(source.fd, message);
        return Status::Ok();
      }
      case wire::kMsgEnd:
        source.ended = true;
        if (message.text_bytes) {
          auto j = nlohmann::json::parse(text_of(message), nullptr, false);
          if (j.is_object()) stats_.update(j);
        }
        return Status::Ok();
      case wire::kMsgAbort:
        return Status::Error(fmt::format("{} gave up: {}", source.name, text_of(message)));
      default:
        return Status::Error(
            fmt::format("{} sent a message of unknown type {}", source.name, message.type));
    }
  }

  Status check_slot(uint32_t slot, bool blob) {
    if (slot >= wire::kRingSlots)
      return Status::Error("a message names a slot that does not exist");
    const wire::SlotHeader* header = ring_.slot(slot);
    if (header->payload_bytes > wire::kSlotPayloadBytes ||
        (!blob && header->runs > wire::kMaxRuns)) {
      return Status::Error("a slot of the ring claims more than it can hold");
    }
    return Status::Ok();
  }

  // Which of the names in this slot are known?
  void answer(uint32_t slot) {
    uint8_t* payload = ring_.payload(slot);
    uint64_t bytes = std::min(ring_.slot(slot)->payload_bytes, wire::kSlotPayloadBytes);
    std::vector<store::ChunkName> names = names_at(payload, bytes);
    std::vector<uint8_t> known(names.size());
    writer_->known(names, known.data());
    std::copy(known.begin(), known.end(), payload);
  }
  // How long the names of a run are; more than a slot when the run makes no sense.
  static uint64_t names_bytes(uint64_t space, const wire::Run& run) {
    constexpr uint64_t kNever = ~0ull;
    if (run.length == 0 || run.length > wire::kSlotPayloadBytes * store::kLargeChunk ||
        run.address + run.length < run.address) {
      return kNever;
    }
    return sizeof(store::ChunkName) *
           store::chunks_in(run.address, run.length, store::chunk_unit(space));
  }
  static std::vector<store::ChunkName> names_at(const uint8_t* bytes, uint64_t length) {
    std::vector<store::ChunkName> out(length / sizeof(store::ChunkName));
    if (!out.empty()) memcpy(out.data(), bytes, out.size() * sizeof(store::ChunkName));
    return out;
  }

  Status put_slot(uint32_t slot) {
    const wire::SlotHeader* header = ring_.slot(slot);
    const uint8_t* payload = ring_.payload(slot);
    // Copied first: the other side can still write to the ring.
    const uint64_t space = header->space,
                   bytes = std::min(header->payload_bytes, wire::kSlotPayloadBytes);
    const uint32_t runs = std::min(header->runs, wire::kMaxRuns);
    uint64_t at = 0;
    for (uint32_t i = 0; i < runs; ++i) {
      const wire::Run run = header->run[i];
      Status status;
      if (run.flags == wire::kRunZero) {
        status = writer_->put_zero(space, run.address, run.length);
      } else if (run.flags == wire::kRunSame) {
        status = writer_->put_same(space, run.address, run.length);
      } else if (run.flags == wire::kRunNamed || run.flags == wire::kRunSealed) {
        bool sealed = run.flags == wire::kRunSealed;
        uint64_t names = names_bytes(space, run), after = sealed ? run.length : 0;
        if (names > bytes - at || after > bytes - at - names)
          return Status::Error("the names of a run do not fit its slot");
        std::vector<store::ChunkName> list = names_at(payload + at, names);
        status = sealed ? writer_->put(space, run.address, {payload + at + names, after}, list)
                        : writer_->put_named(space, run.address, run.length, list);
        at += names + after;
      } else if (run.flags != wire::kRunData || run.length > bytes - at) {
        status = Status::Error("the runs of a slot do not fit its payload");
      } else {
        status = writer_->put(space, run.address, {payload + at, run.length});
        at += run.length;
      }
      if (!status.ok()) return status;
    }
    return at == bytes ? Status::Ok()
                       : Status::Error("the runs of a slot do not cover its payload");
  }

  // Names first, then the bytes: they must still be what they were where the names were computed.
  Status put_sealed(uint64_t space, const wire::Run& run, std::span<const uint8_t> payload,
                    uint64_t* at) {
    constexpr uint64_t kName = 16;
    const uint64_t unit = store::chunk_unit(space);
    const uint64_t chunks =
        run.length == 0 ? 0 : (run.address % unit + run.length + unit - 1) / unit;
    if (run.length > payload.size() || chunks * kName > payload.size() - run.length ||
        *at > payload.size() - run.length - chunks * kName)
      return Status::Error("the runs of a slot do not fit its payload");
    const uint8_t* name = payload.data() + *at;
    const uint8_t* chunk = name + chunks * kName;
    for (uint64_t done = 0; done < run.length; name += kName) {
      uint64_t length = std::min(unit - (run.address + done) % unit, run.length - done);
      if (memcmp(store::chunk_name(chunk + done, length).data(), name, kName) != 0)
        return {kExitCorrupt,
                fmt::format("device memory at {:#x} changed on its way to the store: a "
                            "transfer was corrupted, or something wrote to it that "
                            "gpuckpt does not see",
                            run.address + done)};
      done += length;
    }
    *at += chunks * kName + run.length;
    return writer_->put(space, run.address, {chunk, run.length});
  }

  // --- workers
  void start_workers() {
    unsigned n = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    if (const char* text = getenv("GPUCKPT_WRITER_THREADS")) n = std::clamp(atoi(text), 1, 64);
    for (unsigned i = 0; i < n; ++i) {
      workers_.emplace_back([this] {
        for (;;) {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
          if (queue_.empty()) return;
          uint32_t slot = queue_.front();
          queue_.pop_front();
          ++busy_;
          bool skip = !failure_.ok();
          lock.unlock();
          Status status = skip ? Status::Ok() : put_slot(slot);
          ring_.free(slot);
          lock.lock();
          --busy_;
          if (!status.ok() && failure_.ok()) failure_ = status;
          changed_.notify_all();
        }
      });
    }
  }
  void enqueue(uint32_t slot) {
    std::lock_guard guard(mutex_);
    queue_.push_back(slot);
    changed_.notify_all();
  }
  Status failure() {
    std::lock_guard guard(mutex_);
    return failure_;
  }
  Status drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return (queue_.empty() && busy_ == 0) || !failure_.ok(); });
    return failure_;
  }
  void stop_workers() {
    {
      std::lock_guard guard(mutex_);
      queue_.clear();
      stop_ = true;
      changed_.notify_all();
    }
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  Arguments arguments_;
  Source sources_[2];
  Ring ring_;
  nlohmann::json description_, stats_ = nlohmann::json::object();
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<store::SnapshotWriter> writer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint32_t> queue_;
  unsigned busy_ = 0;
  bool stop_ = false;
  Status failure_;
  std::vector<std::thread> workers_;
};

// --- start
// -----------------------------------------------------------------------------------------------------------

bool parse(int argc, char** argv, Arguments* out) {
  std::string action;
  static const option options[] = {
      {"store", 1, nullptr, 's'},    {"ring", 1, nullptr, 'r'},
      {"parent", 1, nullptr, 'p'},   {"child", 1, nullptr, 'c'},
      {"job", 1, nullptr, 'j'},      {"level", 1, nullptr, 'l'},
      {"keep", 1, nullptr, 'k'},     {"budget", 1, nullptr, 'b'},
      {"key-file", 1, nullptr, 'K'}, {"budget-action", 1, nullptr, 'B'},
      {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    switch (c) {
      case 's':
        out->store = optarg;
        break;
      case 'r':
        out->ring = atoi(optarg);
        break;
      case 'p':
        out->parent = atoi(optarg);
        break;
      case 'c':
        out->child = atoi(optarg);
        break;
      case 'j':
        out->write.job = optarg;
        break;
      case 'l':
        out->write.level = std::clamp(atoi(optarg), 0, 19);
        break;
      case 'k':
        out->keep = atoi(optarg);
        break;
      case 'b':
        if (!store::parse_size(optarg, &out->write.budget)) return false;
        break;
      case 'B':
        action = optarg;
        break;
      case 'K':
        out->key_file = optarg;
        break;
      default:
        return false;
    }
  }
  if (const char* text = getenv("GPUCKPT_BUDGET_ACTION"); text && action.empty()) action = text;
  if (!action.empty() && action != "prune" && action != "refuse") return false;
  out->write.prune_to_budget = action == "prune";
  if (const char* mirror = getenv("GPUCKPT_MIRROR")) out->mirror = mirror;
  // Made absolute with the others: the store would look for it from another directory.
  if (const char* key = getenv("GPUCKPT_KEY_FILE"); key && out->key_file.empty())
    out->key_file = key;
  return !out->store.empty() && out->ring >= 0 && out->parent >= 0;
}

// Its own session, no terminal, no descriptor and no directory of anybody else.
void stand_alone(const Arguments& arguments) {
  setsid();
  umask(077);
  for (int number : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU})
    signal(number, SIG_IGN);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  std::vector<int> own = {0, 1, 2, arguments.ring, arguments.parent, arguments.child};
  std::sort(own.begin(), own.end());
  unsigned from = 3;
  for (int fd : own) {
    if (fd < static_cast<int>(from)) continue;
    if (fd > static_cast<int>(from)) close_range(from, static_cast<unsigned>(fd) - 1, 0);
    from = static_cast<unsigned>(fd) + 1;
  }
  close_range(from, ~0u, 0);
  for (int fd : {arguments.ring, arguments.parent, arguments.child}) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace
}  // namespace gpuckpt

int main(int argc, char** argv) {
  gpuckpt::Arguments arguments;
  if (!gpuckpt::parse(argc, argv, &arguments)) {
    fprintf(stderr,
            "gpuckpt-writer is started by libgpuckpt.so, not by hand:\n"
            "  gpuckpt-writer --store DIR --ring FD --parent FD [--child FD] [--job ID] [--level "
            "N] [--keep N] [--budget SIZE] [--budget-action prune|refuse] [--key-file FILE]\n");
    return gpuckpt::kExitUsage;
  }
  for (std::string* path : {&arguments.store, &arguments.key_file, &arguments.mirror}) {
    if (path->empty() || (*path)[0] == '/' || gpuckpt::store::is_remote(*path)) continue;
    char* cwd = getcwd(nullptr, 0);
    if (cwd) *path = std::string(cwd) + "/" + *path;
    free(cwd);
  }
  gpuckpt::stand_alone(arguments);
  if (chdir("/") != 0) return gpuckpt::kExitError;
  return gpuckpt::Job(arguments).run();
}
