// The producers' side of the ring, with a writer made of one thread: what several threads put in
// comes out whole, in any amount, and no thread waits for a writer that died. And the records of a
// process, which fail as a whole when they do not fit.
#include <sys/mman.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "snapshot/io/ring.h"
#include "snapshot/process/capture.h"

// Nothing here has a driver.
namespace gpuckpt {
const DevicePlugin* device_plugin = nullptr;
}

namespace {

using namespace gpuckpt;

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

class Writer {
 public:
  struct Bytes {
    std::string data;
    uint64_t zero = 0;
  };

  Writer()
      : memory_(static_cast<char*>(mmap(nullptr, wire::kRingBytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        thread_([this] { loop(); }) {}
  ~Writer() {
    end();
    munmap(memory_, wire::kRingBytes);
  }
  void end() {
    {
      std::lock_guard guard(mutex_);
      quit_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  char* memory() const { return memory_; }
  wire::RingHeader* header() const { return reinterpret_cast<wire::RingHeader*>(memory_); }
  static bool post(void* self, uint32_t type, uint32_t slot, const char* text) {
    return static_cast<Writer*>(self)->take(type, slot, text);
  }

  bool gone = false;  // as a writer that was killed: posts fail
  bool lazy = false;  // takes nothing
  size_t messages = 0;
  // By space and address, cut where runs were.
  std::map<std::pair<uint64_t, uint64_t>, Bytes> got;
  std::map<std::string, std::string> blobs;

 private:
  struct Message {
    uint32_t type, slot;
    std::string text;
  };
  bool take(uint32_t type, uint32_t slot, const char* text) {
    if (gone) return false;
    if (!type) return true;
    {
      std::lock_guard guard(mutex_);
      queue_.push_back({type, slot, text ? text : ""});
    }
    changed_.notify_all();
    return true;
  }
  void loop() {
    for (;;) {
      Message m;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return quit_ || (!lazy && !queue_.empty()); });
        if (queue_.empty() || lazy) return;
        m = queue_.front();
        queue_.pop_front();
      }
      consume(m);
      header()->state[m.slot] = wire::kSlotFree;
      ++header()->freed;
    }
  }
  void consume(const Message& m) {
    ++messages;
    const char* base = memory_ + wire::kRingHeaderBytes + m.slot * wire::kSlotBytes;
    auto* slot = reinterpret_cast<const wire::SlotHeader*>(base);
    const char* payload = base + wire::kSlotHeaderBytes;
    CHECK(header()->state[m.slot] == wire::kSlotBusy);
    CHECK(slot->payload_bytes <= wire::kSlotPayloadBytes && slot->runs <= wire::kMaxRuns);
    if (m.type == wire::kMsgBlob) {
      blobs[m.text].append(payload, slot->payload_bytes);
      return;
    }
    uint64_t used = 0;
    for (uint32_t i = 0; i < slot->runs; ++i) {
      const wire::Run& run = slot->run[i];
      Bytes& to = got[{slot->space, run.address}];
      CHECK(to.data.empty() && !to.zero);  // nothing comes twice
      if (run.flags == wire::kRunZero) {
        to.zero = run.length;
      } else if (run.flags == wire::kRunNamed) {
        const uint64_t first = run.address >> 16, last = (run.address + run.length - 1) >> 16;
        to.data.assign(payload + used, (last - first + 1) * 16);
        used += to.data.size();
      } else {
        CHECK(run.flags == wire::kRunData);
        to.data.assign(payload + used, run.length);
        used += run.length;
      }
    }
    CHECK(used == slot->payload_bytes);
  }

  char* memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> queue_;
  bool quit_ = false;
  std::thread thread_;
};

char byte_at(uint64_t space, uint64_t address) {
  uint64_t x = (address + space * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  return static_cast<char>(x >> 56);
}

// More than the ring holds, from three threads at a time, in pieces of all sizes.
void all_arrives() {
  Writer writer;
  Producer producer(writer.memory(), Writer::post, &writer);
  constexpr uint64_t kBytes = 16 << 20;
  std::vector<std::thread> threads;
  for (uint64_t space = 0; space < 3; ++space)
    threads.emplace_back([&, space] {
      uint64_t x = space + 1;
      for (uint64_t at = 0; at < kBytes;) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t n = ((x >> 33) % 700 + 1) * (x >> 60 ? 4096 : 12288);
        if (n > kBytes - at) n = kBytes - at;
        if (x >> 61 == 0) {
          CHECK(producer.add_zero(space, at, n));
        } else {
          std::string bytes(n, 0);
          for (uint64_t i = 0; i < n; ++i) bytes[i] = byte_at(space, at + i);
          CHECK(producer.add(space, at, bytes.data(), n));
        }
        at += n;
      }
    });
  for (std::thread& t : threads) t.join();
  std::string blob(3 << 20, 'b');
  CHECK(producer.add_blob("large", blob.data(), blob.size()));
  CHECK(producer.add_blob("empty", "", 0));
  CHECK(producer.flush());
  while (writer.header()->freed < 1) std::this_thread::yield();
  for (uint32_t i = 0; i < wire::kRingSlots;)  // all taken
    writer.header()->state[i] == wire::kSlotFree ? void(++i) : std::this_thread::yield();
  writer.end();
  uint64_t data = 0, zero = 0;
  uint64_t next[3] = {};
  for (auto& [where, bytes] : writer.got) {
    auto [space, address] = where;
    CHECK(address == next[space]);  // no gap, no overlap
    next[space] += bytes.data.size() + bytes.zero;
    for (uint64_t i = 0; i < bytes.data.size(); ++i)
      CHECK(bytes.data[i] == byte_at(space, address + i));
    data += bytes.data.size(), zero += bytes.zero;
  }
  for (uint64_t end : next) CHECK(end == kBytes);
  CHECK(data == producer.data_bytes && zero == producer.zero_bytes);
  CHECK(writer.blobs["large"] == blob);
  CHECK(writer.blobs.count("empty") && writer.blobs["empty"].empty());
  CHECK(writer.messages > wire::kRingSlots);
}

// More names than a slot holds, in runs that end inside of chunks; and the wait for their arrival.
void names_arrive() {
  Writer writer;
  Producer producer(writer.memory(), Writer::post, &writer);
  constexpr uint64_t kChunk = 64 << 10, kStart = 3 * kChunk + 512;
  constexpr uint64_t kChunks = 3 * wire::kSlotPayloadBytes / 16 + 77;
  std::string names(kChunks * 16, 0);
  for (size_t i = 0; i < names.size(); ++i) names[i] = byte_at(9, i);
  CHECK(producer.add_named(5, kStart, 100, names.data()));
  CHECK(producer.add_named(6, kStart, kChunks * kChunk - 1024, names.data()));
  CHECK(producer.wait_until_taken());
  for (auto& state : writer.header()->state) CHECK(state == wire::kSlotFree);
  writer.end();
  std::string got;
  uint64_t next = kStart;
  for (auto& [where, bytes] : writer.got) {
    if (where.first == 5) CHECK(where.second == kStart && bytes.data == names.substr(0, 16));
    if (where.first != 6) continue;
    CHECK(where.second == next);
    got += bytes.data;
    next = (next / kChunk + bytes.data.size() / 16) * kChunk;
  }
  CHECK(got == names);
  CHECK(writer.messages >= 4);
}

// As a writer that gives up, or one that was killed.
void ends(Writer* writer, bool tells) {
  if (tells)
    writer->header()->writer_dead = 1;
  else
    writer->gone = true;
}

void arrival_of_nothing(bool tells) {
  Writer writer;
  writer.lazy = true;
  Producer producer(writer.memory(), Writer::post, &writer);
  CHECK(producer.add(0, 0, "something", 9));
  bool ok = true;
  std::thread stuck([&] { ok = producer.wait_until_taken(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ends(&writer, tells);
  stuck.join();
  CHECK(!ok && producer.failed);
}

// The ring is full and no reader empties it: a thread that waits learns of the writer's end.
void dead_writer(bool tells) {
  Writer writer;
  writer.lazy = true;
  Producer producer(writer.memory(), Writer::post, &writer);
  std::string piece(wire::kSlotPayloadBytes, 'x');
  bool ok = true;
  std::thread stuck([&] {
    for (uint64_t at = 0; ok && at < 2 * wire::kRingSlots * piece.size(); at += piece.size())
      ok = producer.add(0, at, piece.data(), piece.size());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ends(&writer, tells);
  stuck.join();
  CHECK(!ok && producer.failed);
  CHECK(!producer.add(0, 1ull << 40, "late", 4) && !producer.flush());
}

void records() {
  Region memory = region_map(64 << 10);
  Records all(memory);
  all.put(process::kRecEnd, uint64_t{7});
  all.begin(process::kRecCwd, 3);
  all.add_text("/a");
  all.end();
  CHECK(!all.full && all.size() % 8 == 0);
  process::RecordHead head;
  memcpy(&head, all.data(), sizeof head);
  CHECK(head.type == process::kRecEnd && head.count == 1 && head.bytes == 8);
  const char* second = all.data() + sizeof head + 8;
  memcpy(&head, second, sizeof head);
  CHECK(head.type == process::kRecCwd && head.count == 3 && head.bytes == 3);
  CHECK(!memcmp(second + sizeof head, "/a\0\0\0\0\0\0", 8));  // padded with zeros
  CHECK(second + sizeof head + 8 == all.data() + all.size());
  // Up to the last byte nothing is written beyond the end, and a full one stays full.
  uint64_t count = 0;
  for (std::string text(1000, 't'); !all.full && count < 1000; ++count) {
    all.begin(process::kRecExe);
    all.add_text(text.c_str());
    all.end();
  }
  CHECK(all.full && count > 50 && count < 70 && all.size() <= memory.bytes);
  CHECK(!memcmp(second + sizeof head, "/a", 3));
  region_unmap(&memory);
}

}  // namespace

int main() {
  all_arrives();
  names_arrive();
  arrival_of_nothing(true);
  arrival_of_nothing(false);
  dead_writer(true);
  dead_writer(false);
  records();
  puts("ok");
}
