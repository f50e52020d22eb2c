// The description of a process comes from a store that may be damaged in any way: whatever its
// bytes are, it is read as what it says or refused, and nothing outside it is touched (run it under
// --sanitize).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gpuckpt/exit_codes.h"
#include "restore/image/image.h"

namespace {

using namespace gpuckpt;
using namespace gpuckpt::process;
using restore::Image;

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

class Blob {
 public:
  template <typename T>
  Blob& put(RecordType type, const T& value, const std::string& tail = "", uint32_t count = 1) {
    std::string payload(reinterpret_cast<const char*>(&value), sizeof value);
    return raw(type, payload + tail, count);
  }
  Blob& raw(uint32_t type, const std::string& payload, uint32_t count = 1) {
    RecordHead head{type, count, payload.size()};
    const auto* h = reinterpret_cast<const uint8_t*>(&head);
    starts.push_back(bytes.size());
    bytes.insert(bytes.end(), h, h + sizeof head);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    while (bytes.size() % 8) bytes.push_back(0);
    return *this;
  }
  std::vector<uint8_t> bytes;
  std::vector<size_t> starts;
};

Head good_head() {
  Head head{};
  head.magic = kFormatMagic;
  head.version = kFormatVersion;
  head.pid = 77;
  return head;
}

// One of everything that has a struct.
Blob good() {
  Blob b;
  Vma plain{0x1000, 0x3000, 0, 3, kVmaAnonymous, 0, -1};
  Vma file{0x5000, 0x6000, 0, 1, kVmaFile, 0, 0};
  Vma shared{0x7000, 0x8000, 0, 3, kVmaShared, 0, 0};
  b.put(kRecHead, good_head()).put(kRecMm, Mm{}).raw(kRecAuxv, std::string(32, 'a'));
  b.put(kRecCpu, Cpuid{}).put(kRecVdso, Vdso{}, "vdso").put(kRecVma, plain, "[heap]");
  b.put(kRecVma, file, std::string("/bin/x\0", 7)).put(kRecVma, shared, "shm");
  b.put(kRecFile, MappedFile{}, "/bin/x").put(kRecShared, SharedObject{}, "shm");
  b.put(kRecThread, Thread{}).raw(kRecSigactions, std::string(64 * sizeof(SignalAction), 0));
  b.raw(kRecPending, std::string(256, 0), 2).put(kRecFd, Descriptor{}, "/dev/null");
  b.put(kRecPipe, Pipe{}, "unread");
  b.put(kRecSocket, Socket{}, std::string(2 * sizeof(SocketOption), 0), 2);
  Message message{};
  message.bytes = 6;
  message.descriptions = 1;
  b.put(kRecMessage, message, std::string(4, 0) + "unread");
  b.put(kRecThreadPending, ThreadPending{}, std::string(128, 0)).put(kRecFileLock, FileLock{});
  b.put(kRecWatch, InotifyWatch{}, "/tmp");
  Terminal terminal{};
  terminal.input_bytes = 2;
  terminal.output_bytes = 3;
  b.put(kRecTerminal, terminal, "inout");
  b.put(kRecEpoll, Epoll{}, std::string(2 * sizeof(EpollEntry), 0), 2).raw(kRecCwd, "/home");
  b.raw(kRecLimits, std::string(16 * sizeof(Limit), 0));
  b.raw(kRecItimers, std::string(3 * sizeof(Itimer), 0)).put(kRecTimer, PosixTimer{});
  b.raw(kRecExe, "/bin/x").raw(kRecCommand, std::string("x\0y", 3));
  b.raw(kRecGroups, std::string(8, 1), 2).put(kRecLocks, LibcLocks{1, 0}).raw(kRecEnd, "");
  return b;
}

int code_of(std::vector<uint8_t> bytes) {
  Image image;
  return restore::parse_image(std::move(bytes), &image).code();
}

void reads_what_was_written() {
  Image image;
  CHECK(restore::parse_image(good().bytes, &image).ok());
  CHECK(image.head.pid == 77 && image.vmas.size() == 3 && image.vmas[1].second == "/bin/x");
  CHECK(image.auxv.size() == 32 && image.cpu.size() == 1 && image.vdso_bytes.size() == 4);
  CHECK(image.pipes[0].second.size() == 6 && image.epolls[0].second.size() == 2);
  CHECK(image.cwd == "/home" && image.command == "x y" && image.groups.size() == 2);
  CHECK(image.sockets[0].options.size() == 2 && image.messages[0].bytes.size() == 6);
  CHECK(image.terminals[0].input.size() == 2 && image.terminals[0].output.size() == 3);
  CHECK(image.watches.size() == 1 && image.file_locks.size() == 1);
  CHECK(image.locks.free == 1 && image.blob == good().bytes);
}

// Paths that would have a restore write outside of what the program had.
void hostile_paths() {
  auto shared = [](uint32_t kind, const char* path) {
    Blob b;
    SharedObject o{};
    o.kind = kind;
    b.put(kRecHead, good_head())
        .put(kRecShared, o, path)
        .put(kRecThread, Thread{})
        .raw(kRecEnd, "");
    return code_of(b.bytes);
  };
  CHECK(shared(kSharedShm, "/dev/shm/ring") == kExitOk);
  CHECK(shared(kSharedFile, "/home/me/data..bin") == kExitOk);
  for (const char* path : {"/etc/cron.d/job", "/dev/shm/../../etc/passwd", "/dev/shm/a/../../x",
                           "ring", "", "/dev/shm/..", "/dev/shm/./x"})
    CHECK(shared(kSharedShm, path) == kExitCorrupt);
  for (const char* path : {"../.bashrc", "/home/me/../you/.bashrc", "data", "", "/tmp/.."})
    CHECK(shared(kSharedFile, path) == kExitCorrupt);
  Blob b;
  Descriptor d{};
  d.kind = kFdFile;
  b.put(kRecHead, good_head()).put(kRecThread, Thread{}).put(kRecFd, d, "/a/../b").raw(kRecEnd, "");
  CHECK(code_of(b.bytes) == kExitCorrupt);
}

// Cut anywhere, it is damaged: its end is missing.
void truncated() {
  const std::vector<uint8_t> whole = good().bytes;
  for (size_t n = 0; n < whole.size(); ++n)
    CHECK(code_of({whole.begin(), whole.begin() + static_cast<long>(n)}) == kExitCorrupt);
}

// Any byte changed in any way: an answer, not a crash; a record's length always matters.
void changed() {
  const std::vector<uint8_t> whole = good().bytes;
  for (size_t i = 0; i < whole.size(); ++i)
    for (uint8_t with : {0x01, 0x80, 0xff}) {
      std::vector<uint8_t> damaged = whole;
      damaged[i] ^= with;
      int code = code_of(damaged);
      CHECK(code == kExitOk || code == kExitCorrupt || code == kExitIncompatible);
    }
  for (size_t start : good().starts)
    for (uint64_t length :
         {~uint64_t{0}, ~uint64_t{7}, uint64_t{1} << 63, uint64_t{whole.size()}}) {
      std::vector<uint8_t> damaged = whole;
      memcpy(damaged.data() + start + 8, &length, 8);
      CHECK(code_of(damaged) != kExitOk);
    }
}

// Records whose payload is too short for what they hold, or whose count is not theirs.
void too_short() {
  const Blob whole = good();
  for (size_t i = 0; i + 1 < whole.starts.size(); ++i) {
    RecordHead head;
    memcpy(&head, whole.bytes.data() + whole.starts[i], sizeof head);
    bool text = head.type == kRecAuxv || head.type == kRecCwd || head.type == kRecExe ||
                head.type == kRecCommand;
    if (text) continue;
    Blob cut;
    for (size_t k = 0; k < whole.starts.size(); ++k) {
      RecordHead h;
      memcpy(&h, whole.bytes.data() + whole.starts[k], sizeof h);
      const char* payload =
          reinterpret_cast<const char*>(whole.bytes.data() + whole.starts[k] + sizeof h);
      cut.raw(h.type, std::string(payload, k == i ? 3 : h.bytes), h.count);
    }
    CHECK(code_of(cut.bytes) == kExitCorrupt);
  }
  for (RecordType type : {kRecCpu, kRecGroups, kRecPending}) {
    Blob b;
    b.put(kRecHead, good_head()).put(kRecThread, Thread{}).raw(type, std::string(24, 0), ~0u);
    CHECK(code_of(b.raw(kRecEnd, "").bytes) == kExitCorrupt);
  }
}

int with(RecordType type, const std::string& payload, const Head& head = good_head()) {
  Blob b;
  b.put(kRecHead, head).put(kRecThread, Thread{}).raw(type, payload).raw(kRecEnd, "");
  return code_of(b.bytes);
}
int with_vma(uint64_t start, uint64_t end, VmaKind kind, int object) {
  Vma v{start, end, 0, 3, kind, 0, object};
  return with(kRecVma, std::string(reinterpret_cast<const char*>(&v), sizeof v));
}

void nonsense() {
  CHECK(with(kRecCwd, "/") == kExitOk);
  CHECK(with(static_cast<RecordType>(99), "?") == kExitIncompatible);  // would restore less
  Head head = good_head();
  head.version = kFormatVersion + 1;
  CHECK(with(kRecCwd, "/", head) == kExitIncompatible);
  head.magic ^= 1;
  CHECK(with(kRecCwd, "/", head) == kExitCorrupt);
  CHECK(code_of(Blob().put(kRecThread, Thread{}).raw(kRecEnd, "").bytes) == kExitCorrupt);
  CHECK(code_of(Blob().put(kRecHead, good_head()).raw(kRecEnd, "").bytes) == kExitCorrupt);
  CHECK(with_vma(0x1000, 0x2000, kVmaAnonymous, -1) == kExitOk);
  CHECK(with_vma(0x2000, 0x2000, kVmaAnonymous, -1) == kExitCorrupt);
  CHECK(with_vma(0x2000, 0x1000, kVmaAnonymous, -1) == kExitCorrupt);
  CHECK(with_vma(0x1001, 0x2000, kVmaAnonymous, -1) == kExitCorrupt);
  CHECK(with_vma(0x1000, 1ull << 48, kVmaAnonymous, -1) == kExitCorrupt);  // the kernel's half
  for (int object : {-1, 0, 1 << 30}) {
    CHECK(with_vma(0x1000, 0x2000, kVmaFile, object) == kExitCorrupt);  // no such file
    CHECK(with_vma(0x1000, 0x2000, kVmaFileShared, object) == kExitCorrupt);
    CHECK(with_vma(0x1000, 0x2000, kVmaShared, object) == kExitCorrupt);
  }
  Descriptor d{};
  d.fd = -1;
  CHECK(with(kRecFd, std::string(reinterpret_cast<const char*>(&d), sizeof d)) == kExitCorrupt);
}

}  // namespace

int main() {
  reads_what_was_written();
  hostile_paths();
  truncated();
  changed();
  too_short();
  nonsense();
  puts("ok");
}
