// The writer process as the library uses it: what it publishes, when it drops, and that killing it,
// or its application, at any moment loses nothing.
//
// writer_kill_test WRITER [ROUNDS]: prints one word per family; exits 1 with the reason otherwise.

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "gpuckpt/wire.h"
#include "store/format/format.h"
#include "store/store.h"
#include "store/tests/must.h"

using namespace gpuckpt;
namespace fs = std::filesystem;

namespace {

std::string writer_path;

// The library's side: a ring, two sockets, one writer.
struct Application {
  uint8_t* ring = nullptr;
  int parent = -1, child = -1;
  pid_t writer = -1;

  wire::RingHeader* header() { return reinterpret_cast<wire::RingHeader*>(ring); }
  wire::SlotHeader* slot(uint32_t i) {
    return reinterpret_cast<wire::SlotHeader*>(ring + wire::kRingHeaderBytes +
                                               i * wire::kSlotBytes);
  }

  void start(const std::string& store, std::vector<std::string> options = {}) {
    int fd = memfd_create("ring", 0);
    MUST(fd >= 0 && ftruncate(fd, wire::kRingBytes) == 0, "no ring");
    ring = static_cast<uint8_t*>(
        mmap(nullptr, wire::kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    header()->magic = wire::kMagic;
    header()->version = wire::kWireVersion;
    int p[2], c[2];
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p) == 0 &&
             socketpair(AF_UNIX, SOCK_SEQPACKET, 0, c) == 0,
         "socketpair");
    parent = p[0];
    child = c[0];
    std::vector<std::string> argv = {writer_path,
                                     "--store",
                                     store,
                                     "--ring",
                                     std::to_string(fd),
                                     "--parent",
                                     std::to_string(p[1]),
                                     "--child",
                                     std::to_string(c[1])};
    argv.insert(argv.end(), options.begin(), options.end());
    writer = fork();
    if (writer == 0) {
      close(p[0]);
      close(c[0]);
      std::vector<char*> raw;
      for (auto& a : argv) raw.push_back(a.data());
      raw.push_back(nullptr);
      execv(raw[0], raw.data());
      _exit(127);
    }
    close(fd);
    close(p[1]);
    close(c[1]);
  }
  bool say(int socket, uint32_t type, uint32_t slot_number = 0, const std::string& text = "") {
    wire::Msg m{};
    m.magic = wire::kMagic;
    m.version = wire::kWireVersion;
    m.type = type;
    m.slot = slot_number;
    m.text_bytes = static_cast<uint32_t>(text.size());
    memcpy(m.text, text.data(), text.size());
    return send(socket, &m, sizeof(m), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(m));
  }
  // 0: the writer is gone
  uint32_t hear(wire::Msg* m, int timeout_ms = 20000) {
    pollfd poller{parent, POLLIN, 0};
    MUST(poll(&poller, 1, timeout_ms) > 0, "the writer said nothing for %d ms", timeout_ms);
    ssize_t n = recv(parent, m, sizeof(*m), 0);
    return n == static_cast<ssize_t>(sizeof(*m)) ? m->type : 0;
  }
  bool claim(uint32_t* out) {
    for (;;) {
      uint32_t seen = header()->freed;
      if (header()->writer_dead) return false;
      for (uint32_t i = 0; i < wire::kRingSlots; ++i) {
        uint32_t free = wire::kSlotFree;
        if (header()->state[i].compare_exchange_strong(free, wire::kSlotBusy)) {
          *out = i;
          return true;
        }
      }
      timespec wait{0, 50'000'000};
      syscall(SYS_futex, &header()->freed, FUTEX_WAIT, seen, &wait, nullptr, 0);
      if (kill(writer, 0) != 0 || waitpid(writer, nullptr, WNOHANG) == writer)
        return writer = -1, false;
    }
  }
  bool put(int socket, uint64_t address, const std::vector<uint8_t>& bytes) {
    uint32_t i;
    if (!claim(&i)) return false;
    wire::SlotHeader* s = slot(i);
    s->space = 0;
    s->runs = 2;
    s->run[0] = {address, bytes.size(), wire::kRunData, 0};
    s->run[1] = {address + (1ull << 40), 1 << 20, wire::kRunZero, 0};
    s->payload_bytes = bytes.size();
    memcpy(reinterpret_cast<uint8_t*>(s) + wire::kSlotHeaderBytes, bytes.data(), bytes.size());
    return say(socket, wire::kMsgData, i);
  }
  void stop() {
    if (parent >= 0) close(parent);
    if (child >= 0) close(child);
    parent = child = -1;
    if (writer > 0) waitpid(writer, nullptr, 0);
    writer = -1;
    if (ring) munmap(ring, wire::kRingBytes);
    ring = nullptr;
  }
};

std::vector<uint8_t> bytes_for(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> out(512 * 1024);
  for (size_t i = 0; i < out.size(); i += 8) {
    uint64_t word = random() & 0x0f0f0f0f0f0f0f0f;
    memcpy(&out[i], &word, 8);
  }
  return out;
}

constexpr int kPieces = 12;

// A whole snapshot; false as soon as the writer is gone. The id comes back when it was durable.
bool snapshot(Application& app, const std::string& store, uint64_t seed, std::string* id,
              std::vector<std::string> options = {}, std::atomic<pid_t>* victim = nullptr) {
  app.start(store, options);
  if (victim) *victim = app.writer;
  if (!app.say(app.parent, wire::kMsgHello, 0,
               "{\"pid\":1,\"tag\":\"t" + std::to_string(seed) + "\"}"))
    return false;
  wire::Msg m;
  if (app.hear(&m) != wire::kMsgReady) return false;
  for (int i = 0; i < kPieces; ++i) {
    int socket = i % 3 ? app.child : app.parent;
    if (!app.put(socket, static_cast<uint64_t>(i) << 20,
                 bytes_for(seed * 100 + static_cast<uint64_t>(i) % 8)))
      return false;
  }
  if (!app.say(app.child, wire::kMsgEnd)) return false;
  if (!app.say(app.parent, wire::kMsgEnd, 0, "{\"stall_us\":5}")) return false;
  if (app.hear(&m, 60000) != wire::kMsgDurable) return false;
  *id = std::string(m.text, m.text_bytes);
  return true;
}

void check(const std::string& path, const std::set<std::string>& durable, int round) {
  std::unique_ptr<store::Store> store;
  store::Status s = store::Store::open(path, {}, &store);
  MUST(s.ok() || (durable.empty() && s.code() == kExitAbsent), "round %d: %s", round,
       s.text().c_str());
  if (!s.ok()) return;
  store::VerifyReport report;
  s = store->verify({.full = true}, &report);
  MUST(s.ok(), "round %d: %s", round, s.text().c_str());
  MUST(report.ok(), "round %d: damage: %s", round,
       report.findings.empty() ? report.damaged[0].second.c_str() : report.findings[0].c_str());
  std::set<std::string> there(report.whole.begin(), report.whole.end());
  for (const std::string& id : durable)
    MUST(there.count(id), "round %d: snapshot %s was durable and is lost", round, id.c_str());
}

void check_content(const std::string& path, const std::string& id, uint64_t seed) {
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::SnapshotReader> reader;
  store::Status s = store::open_reference(path + "@" + id, {}, &store, &reader);
  MUST(s.ok(), "%s", s.text().c_str());
  for (int i = 0; i < kPieces; ++i) {
    std::vector<uint8_t> want = bytes_for(seed * 100 + static_cast<uint64_t>(i) % 8),
                         got(want.size());
    s = reader->read(0, static_cast<uint64_t>(i) << 20, got);
    MUST(s.ok() && got == want, "piece %d of %s differs: %s", i, id.c_str(), s.text().c_str());
  }
}

size_t count(const std::string& directory, const std::string& extension) {
  size_t n = 0;
  for (const auto& entry : fs::directory_iterator(directory))
    n += entry.path().extension() == extension;
  return n;
}

void published(const std::string& path) {
  Application app;
  std::string id;
  MUST(snapshot(app, path, 1, &id), "the writer did not publish");
  app.stop();
  check_content(path, id, 1);
  Application again;
  MUST(snapshot(again, path, 1, &id, {"--keep", "1", "--job", "j"}), "the writer did not publish");
  again.stop();
  check_content(path, id, 1);
  puts("published");
}

void dropped(const std::string& path) {
  size_t before = count(path + "/snapshots", ".manifest");
  for (int ending = 0; ending < 3; ++ending) {
    Application app;
    app.start(path);
    wire::Msg m;
    app.say(app.parent, wire::kMsgHello, 0, "{}");
    MUST(app.hear(&m) == wire::kMsgReady, "not ready");
    app.put(app.parent, 0, bytes_for(7));
    if (ending == 0) close(std::exchange(app.parent, -1));
    if (ending == 1) {
      app.say(app.parent, wire::kMsgEnd);
      close(std::exchange(app.child, -1));
    }
    if (ending == 2) app.say(app.child, wire::kMsgAbort, 0, "testing");
    if (ending != 0) {
      MUST(app.hear(&m) == wire::kMsgFailed, "no failure was reported");
      MUST(m.text_bytes > 10 && app.header()->writer_dead, "the failure was not explained");
    }
    app.stop();
    MUST(count(path + "/snapshots", ".manifest") == before, "a dropped snapshot was published");
    MUST(count(path + "/packs", ".tmp") == 0, "a dropped snapshot left files behind");
    MUST(count(path + "/locks", ".lock") == 0, "a dropped snapshot left its lock behind");
  }
  puts("dropped");
}

// After both said kMsgEnd the application may die.
void survives(const std::string& path) {
  size_t before = count(path + "/snapshots", ".manifest");
  Application app;
  app.start(path);
  wire::Msg m;
  app.say(app.parent, wire::kMsgHello, 0, "{}");
  MUST(app.hear(&m) == wire::kMsgReady, "not ready");
  for (int i = 0; i < kPieces; ++i)
    app.put(app.child, static_cast<uint64_t>(i) << 20, bytes_for(900 + static_cast<uint64_t>(i)));
  app.say(app.parent, wire::kMsgEnd);
  close(std::exchange(app.parent, -1));
  app.say(app.child, wire::kMsgEnd);
  app.stop();
  MUST(count(path + "/snapshots", ".manifest") == before + 1,
       "the snapshot of a program that ended was lost");
  puts("survives");
}

void refuses(const std::string& path) {
  struct {
    const char* what;
    void (*spoil)(Application&);
  } cases[] = {
      {"a slot that does not exist", [](Application& a) { a.say(a.parent, wire::kMsgData, 1000); }},
      {"too many runs",
       [](Application& a) {
         a.slot(0)->runs = 1u << 30;
         a.say(a.parent, wire::kMsgData, 0);
       }},
      {"a payload beyond the slot",
       [](Application& a) {
         a.slot(0)->runs = 1;
         a.slot(0)->payload_bytes = ~0ull;
         a.slot(0)->run[0] = {0, ~0ull, wire::kRunData, 0};
         a.say(a.parent, wire::kMsgData, 0);
       }},
      {"runs beyond the payload",
       [](Application& a) {
         a.slot(0)->runs = 1;
         a.slot(0)->payload_bytes = 4096;
         a.slot(0)->run[0] = {0, 8192, wire::kRunData, 0};
         a.say(a.parent, wire::kMsgData, 0);
         a.say(a.child, wire::kMsgEnd);
         a.say(a.parent, wire::kMsgEnd);
       }},
      {"a message of unknown type", [](Application& a) { a.say(a.parent, 77); }},
      {"half a message", [](Application& a) { (void)!send(a.parent, "abc", 3, MSG_NOSIGNAL); }},
  };
  for (auto& c : cases) {
    Application app;
    app.start(path);
    wire::Msg m;
    app.say(app.parent, wire::kMsgHello, 0, "{}");
    MUST(app.hear(&m) == wire::kMsgReady, "not ready");
    c.spoil(app);
    MUST(app.hear(&m) == wire::kMsgFailed, "%s was accepted", c.what);
    app.stop();
  }
  Application app;
  app.start(path);
  wire::Msg m;
  app.say(app.parent, wire::kMsgHello, 0, "not JSON");
  MUST(app.hear(&m) == wire::kMsgFailed, "a hello that is not JSON was accepted");
  app.stop();
  puts("refuses");
}

HashKey key_of_names;  // as the last kMsgReady said

std::vector<store::ChunkName> names_of(const std::vector<uint8_t>& bytes, uint64_t unit = 4096) {
  const auto names = store::Names::keyed(key_of_names, nullptr);
  std::vector<store::ChunkName> out;
  for (size_t at = 0; at < bytes.size(); at += unit)
    out.push_back(names->plain(&bytes[at], std::min<size_t>(unit, bytes.size() - at)));
  return out;
}

// Fills a slot with one run; `parts` follow each other in its payload.
void fill(Application& app, uint32_t i, wire::Run run,
          std::initializer_list<std::span<const uint8_t>> parts) {
  wire::SlotHeader* s = app.slot(i);
  s->space = 0;
  s->runs = 1;
  s->run[0] = run;
  s->payload_bytes = 0;
  for (auto part : parts) {
    memcpy(reinterpret_cast<uint8_t*>(s) + wire::kSlotHeaderBytes + s->payload_bytes, part.data(),
           part.size());
    s->payload_bytes += part.size();
  }
}
// As they lie before the bytes of a sealed run.
std::vector<uint8_t> padded(const std::vector<store::ChunkName>& names) {
  std::vector<uint8_t> out(wire::padded_names(names.size() * sizeof(names[0])));
  memcpy(out.data(), names.data(), names.size() * sizeof(names[0]));
  return out;
}
std::span<const uint8_t> raw(const std::vector<store::ChunkName>& names) {
  return {names.data()->data(), names.size() * sizeof(names[0])};
}

std::string greet(Application& app, const std::string& hello) {
  wire::Msg m;
  app.say(app.parent, wire::kMsgHello, 0, hello);
  MUST(app.hear(&m) == wire::kMsgReady, "not ready");
  MUST(m.keyed == 1, "a new store names its chunks by no key");
  memcpy(key_of_names.byte, m.name_key, sizeof(key_of_names.byte));
  return {m.text, m.text_bytes};
}

// A snapshot that refers to the one before: as the parent has it, by name, with names to compare.
void refers(const std::string& path) {
  Application first;
  std::string id;
  MUST(snapshot(first, path, 3, &id), "the writer did not publish");
  first.stop();
  auto piece = [](uint64_t i) { return bytes_for(300 + i % 8); };
  const std::vector<uint8_t> unseen = bytes_for(4242);

  Application app;
  app.start(path);
  MUST(greet(app, "{\"parent\":\"" + id + "\"}") == id, "the parent was not found");
  uint32_t slot;
  MUST(app.claim(&slot), "no slot");
  const auto known = names_of(piece(1)), unknown = names_of(unseen);
  wire::Msg m;
  uint64_t length = piece(0).size();
  fill(app, slot, {0, length, wire::kRunSame, 0}, {});
  app.say(app.parent, wire::kMsgData, slot);
  MUST(app.claim(&slot), "no slot");
  fill(app, slot, {1 << 20, length, wire::kRunNamed, 0}, {raw(known)});
  app.say(app.parent, wire::kMsgData, slot);
  // Pre-copied: stored, and nowhere in it until it is named.
  const auto late = names_of(unseen, store::kLargeChunk);
  MUST(app.claim(&slot), "no slot");
  fill(app, slot, {0, unseen.size(), wire::kRunSealed, 0}, {padded(late), unseen});
  app.slot(slot)->space = wire::kSpacePrecopyBase;
  app.say(app.parent, wire::kMsgData, slot);
  while (app.header()->state[slot] != wire::kSlotFree) usleep(1000);
  MUST(app.claim(&slot), "no slot");
  fill(app, slot, {9 << 20, unseen.size(), wire::kRunNamed, 0}, {raw(late)});
  app.slot(slot)->space = wire::kSpaceDeviceBase;
  app.say(app.parent, wire::kMsgData, slot);
  for (uint64_t i = 2; i < kPieces; ++i) {
    MUST(app.claim(&slot), "no slot");
    std::vector<uint8_t> bytes = piece(i);
    fill(app, slot, {i << 20, length, wire::kRunSealed, 0}, {padded(names_of(bytes)), bytes});
    app.say(i % 2 ? app.parent : app.child, wire::kMsgData, slot);
  }
  app.say(app.child, wire::kMsgEnd);
  app.say(app.parent, wire::kMsgEnd);
  MUST(app.hear(&m, 60000) == wire::kMsgDurable, "not durable: %s", m.text);
  MUST(m.new_bytes == unseen.size(), "%lu bytes were stored, and %zu are new",
       static_cast<unsigned long>(m.new_bytes), unseen.size());
  std::string second(m.text, m.text_bytes);
  app.stop();
  check_content(path, second, 3);
  {
    std::unique_ptr<store::Store> store;
    std::unique_ptr<store::SnapshotReader> reader;
    store::Status s = store::open_reference(path + "@" + second, {}, &store, &reader);
    MUST(s.ok(), "%s", s.text().c_str());
    std::vector<uint8_t> got(unseen.size());
    s = reader->read(wire::kSpaceDeviceBase, 9 << 20, got);
    MUST(s.ok() && got == unseen, "what was precopied differs: %s", s.text().c_str());
    for (uint64_t space : reader->spaces())
      MUST(space < wire::kSpacePrecopyBase, "what was precopied has a place of its own");
  }

  Application stranger;
  stranger.start(path);
  MUST(greet(stranger, "{\"parent\":\"20200101-000000000-aaaa\"}").empty(),
       "a parent from nowhere");
  stranger.stop();

  struct {
    const char* what;
    bool parent;
    int code;
    std::function<void(Application&)> spoil;
  } cases[] = {
      {"same, without a parent", false, kExitError,
       [](Application& a) {
         fill(a, 0, {0, 4096, wire::kRunSame, 0}, {});
       }},
      {"same, where the parent has nothing", true, kExitError,
       [](Application& a) {
         fill(a, 0, {1ull << 50, 4096, wire::kRunSame, 0}, {});
       }},
      {"same, beyond the end of a space", true, kExitError,
       [](Application& a) {
         fill(a, 0, {~0ull - 4095, 8192, wire::kRunSame, 0}, {});
       }},
      {"a name that is not known", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, length, wire::kRunNamed, 0}, {raw(unknown)});
       }},
      {"fewer names than chunks", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, length + 4096, wire::kRunNamed, 0}, {raw(known)});
       }},
      {"more names than chunks", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, length - 4096, wire::kRunNamed, 0}, {raw(known)});
       }},
      {"names of 2^63 bytes", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, 1ull << 63, wire::kRunNamed, 0}, {raw(known)});
       }},
      {"bytes that changed on their way", true, kExitCorrupt,
       [&](Application& a) {
         fill(a, 0, {0, length, wire::kRunSealed, 0}, {padded(known), unseen});
       }},
      {"sealed, longer than the slot", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, 2 << 20, wire::kRunSealed, 0}, {padded(known), unseen});
       }},
      {"precopied, without names", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, unseen.size(), wire::kRunData, 0}, {unseen});
         a.slot(0)->space = wire::kSpacePrecopyBase;
       }},
      {"precopied, and changed on its way", true, kExitCorrupt,
       [&](Application& a) {
         const auto names = names_of(piece(1), store::kLargeChunk);
         fill(a, 0, {0, length, wire::kRunSealed, 0}, {padded(names), unseen});
         a.slot(0)->space = wire::kSpacePrecopyBase + 3;
       }},
      {"early, of a device", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, unseen.size(), wire::kRunEarly, 0}, {unseen});
         a.slot(0)->space = wire::kSpaceDeviceBase;
       }},
      {"early, longer than the slot", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {0, 2 << 20, wire::kRunEarly, 0}, {unseen});
       }},
      {"early, in the middle of a chunk", true, kExitError,
       [&](Application& a) {
         fill(a, 0, {16, unseen.size(), wire::kRunEarly, 0}, {unseen});
       }},
      {"a run of unknown kind", true, kExitError,
       [](Application& a) {
         fill(a, 0, {0, 4096, 99, 0}, {});
       }},
  };
  size_t before = count(path + "/snapshots", ".manifest");
  for (auto& c : cases) {
    Application bad;
    bad.start(path);
    greet(bad, c.parent ? "{\"parent\":\"" + id + "\"}" : "{}");
    c.spoil(bad);
    bad.say(bad.parent, wire::kMsgData, 0);
    bad.say(bad.child, wire::kMsgEnd);
    bad.say(bad.parent, wire::kMsgEnd);
    MUST(bad.hear(&m) == wire::kMsgFailed && m.code == c.code, "%s: message %u, code %d", c.what,
         m.type, m.code);
    bad.stop();
  }
  MUST(count(path + "/snapshots", ".manifest") == before, "a refused snapshot was published");
  puts("refers");
}

std::vector<std::string> ids_of(const std::string& path) {
  std::unique_ptr<store::Store> store;
  std::vector<store::SnapshotInfo> list;
  if (!store::Store::open(path, {}, &store).ok() || !store->list(&list).ok()) return {};
  std::vector<std::string> out;
  for (auto& info : list) out.push_back(info.id);
  return out;
}

constexpr size_t kKept = 3;

// What a round does, and where in it death may come.
enum Kind {
  kWrite,       // until the snapshot is durable
  kWriteKeep,   // and while the older ones are pruned after it
  kWriteMirror  // and while it is mirrored, and the older ones are pruned
};

// Kills at a random moment of each round. The kinds take turns; each has its own time, from which
// the moments are taken. Whatever was durable, and is not older than the newest ones that a prune
// keeps, is whole; so is whatever the mirror shows.
void killed(const std::string& path, int rounds) {
  std::mt19937 random(static_cast<unsigned>(getpid()));
  const std::string mirror = path + ".mirror";
  std::set<std::string> durable, mirrored;
  int kills = 0, after_durable = 0;
  double span_us[3] = {60000, 60000, 60000};
  for (int round = 0; round < rounds; ++round) {
    const Kind kind = round % 4 == 3 ? kWriteKeep : round % 4 == 1 ? kWriteMirror : kWrite;
    std::vector<std::string> before = ids_of(path);
    Application app;
    std::atomic<pid_t> victim{0};
    std::atomic<bool> over{false}, hit{false};
    if (kind == kWriteMirror) setenv("GPUCKPT_MIRROR", mirror.c_str(), 1);
    auto start = std::chrono::steady_clock::now();
    const double moment = std::uniform_real_distribution<>(0, span_us[kind] * 1.1)(random);
    std::thread killer([&] {
      usleep(static_cast<useconds_t>(moment));
      if (pid_t pid = victim; !over && pid > 0) hit = kill(pid, SIGKILL) == 0;
    });
    std::string id;
    const bool done =
        snapshot(app, path, static_cast<uint64_t>(round % 5) + 10, &id,
                 kind == kWrite ? std::vector<std::string>{}
                                : std::vector<std::string>{"--keep", std::to_string(kKept)},
                 &victim);
    // The writer lives on while it mirrors and prunes; it is reaped only when the killing has
    // ended.
    siginfo_t ended{};
    if (kind != kWrite && app.writer > 0)
      waitid(P_PID, static_cast<id_t>(app.writer), &ended, WEXITED | WNOWAIT);
    over = true;
    const double took =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    killer.join();
    unsetenv("GPUCKPT_MIRROR");
    app.stop();
    kills += hit;
    after_durable += hit && done;
    if (!hit) span_us[kind] = std::max(10000.0, 0.7 * span_us[kind] + 0.3 * took);
    MUST(done || hit, "round %d: the writer failed although it was not killed", round);
    if (done) durable.insert(id);
    if (kind != kWrite) {  // what its prune may have taken
      std::set<std::string> all(before.begin(), before.end()), there;
      if (done) all.insert(id);
      for (const std::string& one : ids_of(path)) all.insert(one), there.insert(one);
      while (all.size() > kKept) {
        if (!there.count(*all.begin())) durable.erase(*all.begin());
        all.erase(all.begin());
      }
    }
    check(path, durable, round);
    if (kind != kWriteMirror) continue;
    check(mirror, mirrored, round);
    mirrored.clear();
    for (const std::string& one : ids_of(mirror)) mirrored.insert(one);
    if (mirrored.size() > 2 * kKept) {  // a mirror keeps what its store prunes
      std::unique_ptr<store::Store> store;
      store::PruneReport report;
      MUST(store::Store::open(mirror, {}, &store).ok(), "the mirror cannot be opened");
      store::Status s = store->prune({.keep = 1}, &report);
      MUST(s.ok(), "round %d: %s", round, s.text().c_str());
      mirrored.clear();
      for (const std::string& one : ids_of(mirror)) mirrored.insert(one);
      check(mirror, mirrored, round);
    }
  }
  Application app;
  std::string id;
  MUST(snapshot(app, path, 50, &id), "after %d kills the store cannot be written to", rounds);
  app.stop();
  durable.insert(id);
  check(path, durable, rounds);
  check_content(path, id, 50);
  std::unique_ptr<store::Store> store;
  MUST(store::Store::open(path, {}, &store).ok(), "open");
  // The last writer says "durable" before it releases its lock: prune postpones until it has.
  store::PruneReport report;
  for (int patience = 100;; --patience) {
    report = {};
    MUST(store->prune({}, &report).ok(), "prune");
    if (report.postponed.empty()) break;
    MUST(patience > 0, "prune still postpones after ten seconds: %s", report.postponed.c_str());
    usleep(100000);
  }
  check(path, durable, rounds + 1);
  store::MirrorReport copied;
  store::Status s = store->mirror(mirror, &copied);
  MUST(s.ok() && copied.damaged.empty(), "after the kills: %s", s.text().c_str());
  check(mirror, durable, rounds + 1);
  check_content(mirror, id, 50);
  for (const std::string& one : {path, mirror})
    MUST(count(one + "/packs", ".tmp") + count(one + "/snapshots", ".tmp") == 0,
         "leftovers stay in %s", one.c_str());
  printf("killed %d of %d (%d while mirroring or pruning), 0 lost\n", kills, rounds, after_durable);
}

}  // namespace

int main(int argc, char** argv) {
  MUST(argc >= 2, "usage: %s WRITER [ROUNDS]", argv[0]);
  writer_path = argv[1];
  int rounds = argc > 2 ? atoi(argv[2]) : 100;
  const char* base = getenv("TMPDIR");
  std::string directory = std::string(base                            ? base
                                      : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                                                      : "/tmp") +
                          "/gpuckpt-writer-test.XXXXXX";
  MUST(mkdtemp(directory.data()), "no directory");
  published(directory + "/a");
  dropped(directory + "/a");
  survives(directory + "/a");
  refuses(directory + "/a");
  refers(directory + "/a");
  killed(directory + "/b", rounds);
  fs::remove_all(directory);
  puts("EXIT-SUCCESS");
  return 0;
}
