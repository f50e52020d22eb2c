#include "evidence.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

namespace probe {

void (*evidence_last_words)() = nullptr;

namespace {

struct Note {
  uint64_t order, ns;
  const char *kind, *name;
  uint64_t a, b, c;
  int64_t result;
  int error, tid;
  char text[72];
};
constexpr uint64_t kNotes = 512;
Note g_notes[kNotes];
std::atomic<uint64_t> g_next{0};

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// One line being written; never allocates. Several threads may report at once: each has its own.
struct Line {
  char bytes[48 << 10];
  size_t used = 0;
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(bytes + used, sizeof bytes - used, format, arguments);
    va_end(arguments);
    if (n > 0) used = used + static_cast<size_t>(n) < sizeof bytes ? used + n : sizeof bytes - 1;
  }
  void add_text(const char* s) {
    add("\"");
    for (; s && *s; ++s) add(*s == '"' || *s == '\\' || *s < 0x20 || *s > 0x7e ? "?" : "%c", *s);
    add("\"");
  }
  void send() {
    add("\n");
    for (size_t at = 0; at < used;) {
      ssize_t n = write(1, bytes + at, used - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
  }
};
constexpr int kLines = 8;
Line g_line[kLines];
std::atomic<int> g_line_at{0};
Line& new_line() {
  Line& line = g_line[g_line_at++ % kLines];
  line.used = 0;
  return line;
}

// -- addresses -> module+offset, from /proc/self/maps read by system calls

struct Map {
  uint64_t start, end, offset;
  bool code;
  char name[64];
};
constexpr int kMaps = 4096;
Map g_maps[kMaps];
int g_map_count;
std::atomic_flag g_maps_busy = ATOMIC_FLAG_INIT;

uint64_t hex(const char*& s) {
  uint64_t value = 0;
  for (;; ++s) {
    int digit = *s >= '0' && *s <= '9' ? *s - '0' : *s >= 'a' && *s <= 'f' ? *s - 'a' + 10 : -1;
    if (digit < 0) return value;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
}

void parse(char* line) {
  if (g_map_count == kMaps) return;
  Map& m = g_maps[g_map_count];
  const char* s = line;
  m.start = hex(s);
  if (*s++ != '-') return;
  m.end = hex(s);
  m.code = strlen(s) > 4 && s[3] == 'x';
  if (strlen(s) < 6) return;
  s += 6;
  m.offset = hex(s);
  const char* name = strchr(line, '/');
  if (!name) name = strchr(line, '[');
  const char* base = name ? strrchr(name, '/') : nullptr;
  strncpy(m.name, base ? base + 1 : name ? name : "anonymous", sizeof m.name - 1);
  ++g_map_count;
}

void read_maps() {
  g_map_count = 0;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  static char buffer[16384];
  size_t have = 0;
  for (ssize_t n; (n = read(fd, buffer + have, sizeof buffer - 1 - have)) > 0;) {
    have += static_cast<size_t>(n);
    buffer[have] = 0;
    char* line = buffer;
    for (char* end; (end = strchr(line, '\n')); line = end + 1) {
      *end = 0;
      parse(line);
    }
    have = strlen(line);
    memmove(buffer, line, have + 1);
    if (have == sizeof buffer - 1) have = 0;
  }
  close(fd);
}

const Map* map_of(uint64_t address) {
  for (int i = 0; i < g_map_count; ++i)
    if (address >= g_maps[i].start && address < g_maps[i].end) return &g_maps[i];
  return nullptr;
}

void add_place(Line& line, uint64_t address) {
  const Map* m = map_of(address);
  if (!m) {
    line.add("\"0x%lx\"", address);
    return;
  }
  line.add("\"%s+0x%lx (0x%lx)\"", m->name, address - m->start + m->offset, address);
}

// Reads memory that may not be there.
size_t peek(uint64_t at, void* to, size_t bytes) {
  iovec mine{to, bytes}, theirs{reinterpret_cast<void*>(at), bytes};
  ssize_t n = process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0);
  if (n >= 0) return static_cast<size_t>(n);
  int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);  // where that call is not allowed
  if (fd < 0) return 0;
  n = pread(fd, to, bytes, static_cast<off_t>(at));
  close(fd);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

void add_notes(Line& line, int count) {
  uint64_t end = g_next.load(), begin = end > kNotes ? end - kNotes : 0;
  if (end - begin > static_cast<uint64_t>(count)) begin = end - static_cast<uint64_t>(count);
  uint64_t now = now_ns();
  line.add("[");
  bool first = true;
  for (uint64_t i = begin; i < end; ++i) {
    const Note& n = g_notes[i % kNotes];
    if (n.order != i + 1) continue;  // being overwritten
    line.add("%s\"-%.3f ms [%d] %s %s(0x%lx, 0x%lx, 0x%lx) = %ld", first ? "" : ", ",
             static_cast<double>(now - n.ns) / 1e6, n.tid, n.kind, n.name ? n.name : "", n.a, n.b,
             n.c, n.result);
    if (n.error) line.add(" errno %d", n.error);
    if (n.text[0]) {
      line.add(" ");
      for (const char* s = n.text; *s; ++s)
        line.add(*s == '"' || *s == '\\' || *s < 0x20 || *s > 0x7e ? "?" : "%c", *s);
    }
    line.add("\"");
    first = false;
  }
  line.add("]");
}

// Frames: what lies on the stack and points behind a call in code. No unwinder: the stack of an
// unknown library, perhaps broken.
void add_stack(Line& line, uint64_t sp) {
  static thread_local uint64_t words[1024] __attribute__((tls_model("initial-exec")));
  size_t got = peek(sp, words, sizeof words) / 8;
  if (!got) got = peek(sp, words, 4096 - sp % 4096) / 8;
  line.add("[");
  int found = 0;
  for (size_t i = 0; i < got && found < 40; ++i) {
    const Map* m = map_of(words[i]);
    if (!m || !m->code) continue;
    unsigned char before[7] = {};
    if (peek(words[i] - 7, before, 7) != 7) continue;
    bool call = before[2] == 0xe8 || (before[5] == 0xff && (before[6] & 0x38) == 0x10) ||
                (before[4] == 0xff && (before[5] & 0x38) == 0x10) ||
                (before[1] == 0xff && (before[2] & 0x38) == 0x10) ||
                (before[0] == 0xff && (before[1] & 0x38) == 0x10) ||
                (before[3] == 0xff && (before[4] & 0x38) == 0x10);
    if (!call) continue;
    if (found++) line.add(", ");
    add_place(line, words[i]);
  }
  line.add("]");
}

void report(const char* what, int number, siginfo_t* info, void* context) {
  while (g_maps_busy.test_and_set()) usleep(1000);
  read_maps();
  const auto& r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  char name[32] = "";
  prctl(PR_GET_NAME, name);
  Line& line = new_line();
  line.add("\n@{\"stage\": \"%s\", \"signal\": %d, \"code\": %d, \"pid\": %d, \"tid\": %ld, ", what,
           number, info->si_code, getpid(), syscall(SYS_gettid));
  line.add("\"thread\": ");
  line.add_text(name);
  line.add(", \"at\": ");
  add_place(line, static_cast<uint64_t>(r[REG_RIP]));
  line.add(", \"address\": ");
  if (number == SIGSEGV || number == SIGBUS)
    add_place(line, reinterpret_cast<uint64_t>(info->si_addr));
  else
    line.add("null");
  line.add(
      ", \"registers\": \"rax %llx rbx %llx rcx %llx rdx %llx rsi %llx rdi %llx rbp %llx rsp "
      "%llx r8 %llx r9 %llx r12 %llx r13 %llx r14 %llx r15 %llx\", \"stack\": ",
      r[REG_RAX], r[REG_RBX], r[REG_RCX], r[REG_RDX], r[REG_RSI], r[REG_RDI], r[REG_RBP],
      r[REG_RSP], r[REG_R8], r[REG_R9], r[REG_R12], r[REG_R13], r[REG_R14], r[REG_R15]);
  add_stack(line, static_cast<uint64_t>(r[REG_RSP]));
  line.add(", \"code_bytes\": \"");
  unsigned char code[16];
  size_t n = peek(static_cast<uint64_t>(r[REG_RIP]), code, sizeof code);
  for (size_t i = 0; i < n; ++i) line.add("%02x", code[i]);
  line.add("\", \"before\": ");
  add_notes(line, 80);
  line.add("}");
  line.send();
  g_maps_busy.clear();
}

void last_words() {
  void (*call)() = evidence_last_words;
  evidence_last_words = nullptr;
  if (!call) return;
  signal(SIGALRM, SIG_DFL);  // should it wait for a lock that nobody gives
  alarm(3);
  call();
  alarm(0);
}

void fatal(int number, siginfo_t* info, void* context) {
  static std::atomic<int> reporting{0};
  signal(number, SIG_DFL);
  if (reporting.exchange(1) == 0) {
    report("crash", number, info, context);
    last_words();
  }
  // Back to the instruction: it fails again and ends the process with the true signal.
  if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}
void hung(int number, siginfo_t* info, void* context) {
  int saved = errno;
  report(number == SIGALRM ? "alarm" : "hung", number, info, context);
  if (number == SIGALRM) _exit(99);
  if (syscall(SYS_gettid) == getpid()) last_words();
  errno = saved;
}

}  // namespace

void evidence_note(const char* kind, const char* name, uint64_t a, uint64_t b, uint64_t c,
                   int64_t result, int error, const char* text) {
  static thread_local int tid __attribute__((tls_model("initial-exec"))) = 0;
  if (!tid)
    tid = static_cast<int>(syscall(SYS_gettid));  // a forked child goes on with its parent's
  uint64_t i = g_next++;
  Note& n = g_notes[i % kNotes];
  n.order = 0;
  n.ns = now_ns();
  n.kind = kind, n.name = name, n.a = a, n.b = b, n.c = c;
  n.result = result, n.error = error, n.tid = tid;
  n.text[0] = 0;
  if (text) {
    strncpy(n.text, text, sizeof n.text - 1);
    n.text[sizeof n.text - 1] = 0;
  }
  n.order = i + 1;
}

void evidence_install() {
  // A program under the door leaves it to the door, which sees the driver calls as well.
  void* door = dlsym(RTLD_DEFAULT, "probe_evidence");
  Dl_info here, there;
  if (door && dladdr(door, &there) && dladdr(reinterpret_cast<void*>(fatal), &here) &&
      here.dli_fbase != there.dli_fbase)
    return;
  // For the thread that calls: a stack overflow is a result, too.
  static char alternate[64 << 10];
  stack_t stack{alternate, 0, sizeof alternate};
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&action.sa_mask);
  action.sa_sigaction = fatal;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS})
    sigaction(number, &action, nullptr);
  action.sa_sigaction = hung;
  sigaction(SIGQUIT, &action, nullptr);
  action.sa_flags &= ~SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
}

void evidence_dump(const char* stage, int count) {
  Line& line = new_line();
  line.add("\n@{\"stage\": \"%s\", \"before\": ", stage);
  add_notes(line, count);
  line.add("}");
  line.send();
}

}  // namespace probe
