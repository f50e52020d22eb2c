#include "realm.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "evidence.h"

extern "C" int __cxa_atexit(void (*)(void*), void*, void*);
extern "C" int __register_atfork(void (*)(), void (*)(), void (*)(), void*);

namespace probe {

int (*realm_current_call)() = nullptr;
const char* (*realm_call_name)(int) = nullptr;

namespace {

RealmOptions g_options;
bool g_watching = false;
int g_generation = 0;

// ---- Events: fixed memory, so that logging never allocates
// ------------------------------------------------

enum Kind {
  kMalloc,
  kFree,
  kMap,
  kUnmap,
  kProtect,
  kOpen,
  kClose,
  kIoctl,
  kSyscall,
  kThread,
  kKey,
  kKeyDelete,
  kAtexit,
  kAtfork,
  kDlopen,
  kDlsym,
  kSignal,
  kEnvironment,
  kProcess,
  kKinds
};
const char* const kKindNames[kKinds] = {
    "malloc", "free",    "mmap",   "munmap",      "mprotect",   "open",   "close",
    "ioctl",  "syscall", "thread", "key",         "key_delete", "atexit", "atfork",
    "dlopen", "dlsym",   "signal", "environment", "process"};

struct Event {
  int kind, call;
  uint64_t a, b, c, result;
  void* caller;
  char text[80];
};
constexpr int kMaxEvents = 60000;
Event* g_events;
std::atomic<int> g_event_count{0};
std::atomic<uint64_t> g_counts[kKinds];
std::atomic<uint64_t> g_outside[kKinds];  // the same, outside any driver call that passed the door

constexpr int kMaxIoctls = 4096;
struct IoctlRow {
  std::atomic<uint64_t> key, count, outside;
} g_ioctls[kMaxIoctls];

constexpr int kMaxFds = 4096;
bool g_fds[kMaxFds];

struct Mapping {
  uint64_t start, length;
};
constexpr int kMaxMappings = 20000;
Mapping* g_mappings;
int g_mapping_count = 0;
std::atomic_flag g_mapping_lock = ATOMIC_FLAG_INIT;

pthread_key_t g_keys[256];
int g_key_count = 0;
// Keys that the driver's constructors made, before any slot was rewritten: [first, end).
pthread_key_t g_early_keys_first = 0, g_early_keys_end = 0;

pthread_key_t next_key() {
  pthread_key_t key = 0;
  pthread_key_create(&key, nullptr);
  pthread_key_delete(key);
  return key;
}

int current_call() { return realm_current_call ? realm_current_call() : -1; }

// Kinds that come by the million are counted only.
bool detailed(Kind kind) {
  return kind != kMalloc && kind != kFree && kind != kIoctl && kind != kDlsym;
}

void note(Kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t result, const char* text,
          void* caller) {
  int saved = errno;
  g_counts[kind]++;
  int call = current_call();
  if (call < 0) g_outside[kind]++;
  if (kind != kMalloc && kind != kFree && kind != kDlsym)
    evidence_note(kKindNames[kind], nullptr, a, b, c, static_cast<int64_t>(result), 0, text);
  if (g_watching && detailed(kind)) {
    int i = g_event_count++;
    if (i < kMaxEvents) {
      Event& e = g_events[i];
      e = {kind, call, a, b, c, result, caller, {}};
      if (text) {
        strncpy(e.text, text, sizeof e.text - 1);
      }
    }
  }
  errno = saved;
}
#define CALLER __builtin_return_address(0)

// ---- The private heap: size classes with four steps per doubling, never given back
// ---------------------------

constexpr uint64_t kHeapBase = 0x200000000000;
uint64_t g_heap_size = 64ull << 30;  // less where the machine promises less
constexpr uint64_t kBlockMagic = 0x70726f6265626c6b;
struct Block {  // 32 bytes before what the driver sees
  uint64_t magic;
  uint64_t size;  // as asked
  uint32_t cls;
  uint32_t pad;
  Block* start;  // the block's own start (differs for aligned blocks); free list link when free
};
struct Heap {
  std::atomic_flag lock = ATOMIC_FLAG_INIT;
  uint64_t top = kHeapBase;
  Block* free_list[256] = {};
} g_heap;

struct Locked {
  std::atomic_flag& flag;
  explicit Locked(std::atomic_flag& f) : flag(f) {
    while (flag.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~Locked() { flag.clear(std::memory_order_release); }
};

bool in_heap(const void* p) { return reinterpret_cast<uint64_t>(p) - kHeapBase < g_heap_size; }

uint64_t class_size(unsigned cls) {
  return (uint64_t)(4 + cls % 4) << (4 + cls / 4);
}  // 64, 80, 96, 112, 128 ...

unsigned class_of(uint64_t bytes) {
  unsigned cls = 0;
  while (class_size(cls) < bytes) ++cls;
  return cls;
}

void* heap_alloc(uint64_t size, uint64_t align = 16) {
  uint64_t want = size + sizeof(Block) + (align > 16 ? align : 0);
  unsigned cls = class_of(want);
  Block* start;
  {
    Locked guard(g_heap.lock);
    start = g_heap.free_list[cls];
    if (start) {
      g_heap.free_list[cls] = start->start;
    } else {
      if (g_heap.top + class_size(cls) > kHeapBase + g_heap_size) {
        errno = ENOMEM;
        return nullptr;
      }
      start = reinterpret_cast<Block*>(g_heap.top);
      g_heap.top += class_size(cls);
    }
  }
  uint64_t user = (reinterpret_cast<uint64_t>(start) + sizeof(Block) + align - 1) & ~(align - 1);
  Block* block = reinterpret_cast<Block*>(user) - 1;
  *block = {kBlockMagic, size, cls, 0, start};
  return reinterpret_cast<void*>(user);
}

void heap_free(void* p) {
  Block* block = static_cast<Block*>(p) - 1;
  if (block->magic != kBlockMagic) {
    fprintf(stderr, "probe: free(%p): not a block of the private heap\n", p);
    return;
  }
  block->magic = 0;
  Block* start = block->start;
  unsigned cls = block->cls;
  Locked guard(g_heap.lock);
  start->start = g_heap.free_list[cls];
  g_heap.free_list[cls] = start;
}

// ---- Hooks
// ---------------------------------------------------------------------------------------------------

void* h_malloc(size_t n) {
  note(kMalloc, n, 0, 0, 0, nullptr, CALLER);
  return g_options.isolate ? heap_alloc(n) : malloc(n);
}
void h_free(void* p) {
  note(kFree, 0, 0, 0, 0, nullptr, CALLER);
  if (!p) return;
  if (in_heap(p)) {
    heap_free(p);
  } else {
    free(p);  // from getdelim, realpath, opendir ..., or allocated before the rewrite
  }
}
void* h_calloc(size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) return nullptr;
  if (!g_options.isolate) {
    note(kMalloc, bytes, 0, 0, 0, nullptr, CALLER);
    return calloc(n, size);
  }
  void* p = h_malloc(bytes);
  if (p) memset(p, 0, bytes);
  return p;
}
void* h_realloc(void* p, size_t n) {
  if (!g_options.isolate) return realloc(p, n);
  if (!p) return h_malloc(n);
  if (n == 0) {
    h_free(p);
    return nullptr;
  }
  size_t old = in_heap(p) ? (static_cast<Block*>(p) - 1)->size : malloc_usable_size(p);
  void* q = h_malloc(n);
  if (!q) return nullptr;
  memcpy(q, p, old < n ? old : n);
  if (in_heap(p)) h_free(p);  // libc's blocks stay: the pristine image may point to them
  return q;
}
void* h_reallocarray(void* p, size_t n, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(n, size, &bytes) ? nullptr : h_realloc(p, bytes);
}
void* h_memalign(size_t align, size_t n) {
  note(kMalloc, n, align, 0, 0, nullptr, CALLER);
  return g_options.isolate ? heap_alloc(n, align < 16 ? 16 : align) : memalign(align, n);
}
int h_posix_memalign(void** out, size_t align, size_t n) {
  *out = h_memalign(align, n);
  return *out ? 0 : ENOMEM;
}
char* h_strndup(const char* s, size_t n) {
  size_t length = strnlen(s, n);
  char* copy = static_cast<char*>(h_malloc(length + 1));
  if (copy) {
    memcpy(copy, s, length);
    copy[length] = 0;
  }
  return copy;
}
char* h_strdup(const char* s) { return h_strndup(s, SIZE_MAX); }
ssize_t h_getdelim(char** line, size_t* capacity, int delimiter, FILE* stream) {
  size_t length = 0;
  for (;;) {
    if (!*line || length + 2 > *capacity) {
      size_t wanted = length * 2 + 120;
      char* grown = static_cast<char*>(h_realloc(*line, wanted));
      if (!grown) return -1;
      *line = grown;
      *capacity = wanted;
    }
    int c = fgetc(stream);
    if (c == EOF) break;
    (*line)[length++] = static_cast<char>(c);
    if (c == delimiter) break;
  }
  (*line)[length] = 0;
  return length ? static_cast<ssize_t>(length) : -1;
}
ssize_t h_getline(char** line, size_t* capacity, FILE* stream) {
  return h_getdelim(line, capacity, '\n', stream);
}
char* h_realpath(const char* path, char* resolved) {
  char buffer[PATH_MAX];
  if (!realpath(path, buffer)) return nullptr;
  if (!resolved) return h_strdup(buffer);
  return strcpy(resolved, buffer);
}
int h_vasprintf(char** out, const char* format, va_list arguments) {
  char* text = nullptr;
  int n = vasprintf(&text, format, arguments);
  if (n >= 0) {
    *out = h_strdup(text);
    free(text);
  }
  return n;
}
int h_asprintf(char** out, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = h_vasprintf(out, format, arguments);
  va_end(arguments);
  return n;
}

void remember_mapping(void* p, size_t length) {
  Locked guard(g_mapping_lock);
  if (g_mapping_count < kMaxMappings)
    g_mappings[g_mapping_count++] = {reinterpret_cast<uint64_t>(p), (length + 4095) & ~4095ull};
}
void forget_mapping(void* p, size_t length) {  // cuts [p, p+length) out of what is remembered
  uint64_t from = reinterpret_cast<uint64_t>(p), to = from + ((length + 4095) & ~4095ull);
  Locked guard(g_mapping_lock);
  for (int i = g_mapping_count - 1; i >= 0; --i) {
    Mapping m = g_mappings[i];
    uint64_t end = m.start + m.length;
    if (end <= from || m.start >= to) continue;
    g_mappings[i] = g_mappings[--g_mapping_count];
    if (m.start < from && g_mapping_count < kMaxMappings)
      g_mappings[g_mapping_count++] = {m.start, from - m.start};
    if (end > to && g_mapping_count < kMaxMappings) g_mappings[g_mapping_count++] = {to, end - to};
  }
}
void* h_mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset) {
  void* p = mmap(at, length, prot, flags, fd, offset);
  char link[64] = "", target[80] = "";
  if (fd >= 0) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
  }
  note(kMap, reinterpret_cast<uint64_t>(at), length,
       (uint64_t)(unsigned)prot << 32 | (unsigned)flags, reinterpret_cast<uint64_t>(p), target,
       CALLER);
  if (p != MAP_FAILED) {
    if (flags & MAP_FIXED) forget_mapping(p, length);
    remember_mapping(p, length);
  }
  return p;
}
int h_munmap(void* p, size_t length) {
  int rc = munmap(p, length);
  note(kUnmap, reinterpret_cast<uint64_t>(p), length, 0, rc, nullptr, CALLER);
  if (rc == 0) forget_mapping(p, length);
  return rc;
}
void* h_mremap(void* old, size_t old_length, size_t length, int flags, void* at) {
  void* p = mremap(old, old_length, length, flags, at);
  note(kMap, reinterpret_cast<uint64_t>(old), length, flags, reinterpret_cast<uint64_t>(p),
       "mremap", CALLER);
  if (p != MAP_FAILED) {
    forget_mapping(old, old_length);
    remember_mapping(p, length);
  }
  return p;
}
int h_mprotect(void* p, size_t length, int prot) {
  int rc = mprotect(p, length, prot);
  note(kProtect, reinterpret_cast<uint64_t>(p), length, prot, rc, nullptr, CALLER);
  return rc;
}

int opened(int fd, const char* what, void* caller) {
  note(kOpen, 0, 0, 0, fd, what, caller);
  if (fd >= 0 && fd < kMaxFds) g_fds[fd] = true;
  return fd;
}
int h_open(const char* path, int flags, int mode) {
  return opened(open(path, flags, mode), path, CALLER);
}
int h_open_2(const char* path, int flags) { return opened(open(path, flags, 0), path, CALLER); }
int h_openat(int at, const char* path, int flags, int mode) {
  return opened(openat(at, path, flags, mode), path, CALLER);
}
int h_close(int fd) {
  note(kClose, fd, 0, 0, 0, nullptr, CALLER);
  if (fd >= 0 && fd < kMaxFds) g_fds[fd] = false;
  return close(fd);
}
int h_dup(int fd) { return opened(dup(fd), "dup", CALLER); }
int h_dup2(int fd, int to) { return opened(dup2(fd, to), "dup2", CALLER); }
int h_dup3(int fd, int to, int flags) { return opened(dup3(fd, to, flags), "dup3", CALLER); }
int h_creat(const char* path, mode_t mode) { return opened(creat(path, mode), path, CALLER); }
int h_fcntl(int fd, int command, long argument) {
  int rc = fcntl(fd, command, argument);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return opened(rc, "fcntl dup", CALLER);
  return rc;
}
int h_pipe2(int* fds, int flags) {
  int rc = pipe2(fds, flags);
  if (rc == 0) opened(fds[0], "pipe read", CALLER), opened(fds[1], "pipe write", CALLER);
  return rc;
}
int h_pipe(int* fds) { return h_pipe2(fds, 0); }
int h_eventfd(unsigned value, int flags) {
  return opened(eventfd(value, flags), "eventfd", CALLER);
}
int h_socket(int domain, int type, int protocol) {
  return opened(socket(domain, type, protocol), "socket", CALLER);
}
int h_socketpair(int domain, int type, int protocol, int* fds) {
  int rc = socketpair(domain, type, protocol, fds);
  if (rc == 0) opened(fds[0], "socketpair", CALLER), opened(fds[1], "socketpair", CALLER);
  return rc;
}
int h_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return opened(accept4(fd, address, length, flags), "accept4", CALLER);
}
int h_epoll_create1(int flags) { return opened(epoll_create1(flags), "epoll", CALLER); }
int h_shm_open(const char* name, int flags, mode_t mode) {
  return opened(shm_open(name, flags, mode), name, CALLER);
}
FILE* h_fopen(const char* path, const char* mode) {
  FILE* f = fopen(path, mode);
  note(kOpen, 1, 0, 0, f ? fileno(f) : -1, path, CALLER);
  return f;
}
int h_ioctl(int fd, unsigned long request, void* argument) {
  g_counts[kIoctl]++;
  bool outside = current_call() < 0;
  if (outside) g_outside[kIoctl]++;
  uint64_t key = (request & 0xffffffff) + 1;
  for (unsigned i = key * 2654435761u % kMaxIoctls, n = 0; n < kMaxIoctls;
       ++n, i = (i + 1) % kMaxIoctls) {
    uint64_t seen = 0;
    if (g_ioctls[i].key.compare_exchange_strong(seen, key) || seen == key) {
      g_ioctls[i].count++;
      if (outside) g_ioctls[i].outside++;
      break;
    }
  }
  int rc = ioctl(fd, request, argument), error = errno;
  // The first words of the argument name object, class or control call; its last ones the status.
  uint32_t words[12] = {};
  unsigned bytes = _IOC_SIZE(request) ? _IOC_SIZE(request) : 16;
  if (argument) memcpy(words, argument, bytes < sizeof words ? bytes & ~3u : sizeof words);
  char text[72];
  snprintf(text, sizeof text, "%x %x %x %x %x %x %x %x", words[0], words[1], words[2], words[3],
           words[4], words[5], words[6], words[7]);
  evidence_note("ioctl", nullptr, static_cast<uint64_t>(fd), request,
                reinterpret_cast<uint64_t>(argument), rc, rc < 0 ? error : 0, text);
  errno = error;
  return rc;
}
long h_syscall(long n, long a, long b, long c, long d, long e, long f) {
  note(kSyscall, n, a, b, 0, nullptr, CALLER);
  return syscall(n, a, b, c, d, e, f);
}

int h_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                     void* argument) {
  int rc = pthread_create(thread, attributes, start, argument);
  note(kThread, reinterpret_cast<uint64_t>(start), reinterpret_cast<uint64_t>(argument), 0, rc,
       nullptr, CALLER);
  return rc;
}
int h_pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) {
  int rc = pthread_key_create(key, destructor);
  note(kKey, *key, reinterpret_cast<uint64_t>(destructor), 0, rc, nullptr, CALLER);
  if (rc == 0 && g_key_count < 256) g_keys[g_key_count++] = *key;
  return rc;
}
int h_pthread_key_delete(pthread_key_t key) {
  note(kKeyDelete, key, 0, 0, 0, nullptr, CALLER);
  for (int i = 0; i < g_key_count; ++i)
    if (g_keys[i] == key) g_keys[i] = g_keys[--g_key_count];
  return pthread_key_delete(key);
}

struct Handler {
  void (*run)(void*);
  void* argument;
  int generation;
} g_handlers[4096];
std::atomic<int> g_handler_count{0};
void run_handler(void* p) {
  Handler* handler = static_cast<Handler*>(p);
  if (handler->generation == g_generation) handler->run(handler->argument);
}
int h_cxa_atexit(void (*run)(void*), void* argument, void* dso) {
  note(kAtexit, reinterpret_cast<uint64_t>(run), reinterpret_cast<uint64_t>(argument),
       reinterpret_cast<uint64_t>(dso), 0, nullptr, CALLER);
  int i = g_handler_count++;
  if (i >= 4096) return __cxa_atexit(run, argument, dso);
  g_handlers[i] = {run, argument, g_generation};
  return __cxa_atexit(run_handler, &g_handlers[i], dso);
}
int h_register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso) {
  note(kAtfork, reinterpret_cast<uint64_t>(prepare), reinterpret_cast<uint64_t>(parent),
       reinterpret_cast<uint64_t>(child), 0, nullptr, CALLER);
  return __register_atfork(prepare, parent, child, dso);
}
int h_sigaction(int number, const struct sigaction* action, struct sigaction* old) {
  note(kSignal, number, action != nullptr, 0, 0, nullptr, CALLER);
  return sigaction(number, action, old);
}
sighandler_t h_signal(int number, sighandler_t handler) {
  note(kSignal, number, 1, 0, 0, nullptr, CALLER);
  return signal(number, handler);
}
int h_setenv(const char* name, const char* value, int replace) {
  note(kEnvironment, 0, 0, 0, 0, name, CALLER);
  return setenv(name, value, replace);
}
pid_t h_fork() {
  note(kProcess, 0, 0, 0, 0, "fork", CALLER);
  return fork();
}
pid_t h_waitpid(pid_t pid, int* status, int options) {
  pid_t rc = waitpid(pid, status, options);
  note(kProcess, pid, options, 0, rc, "waitpid", CALLER);
  return rc;
}
FILE* h_popen(const char* command, const char* mode) {
  note(kProcess, 0, 0, 0, 0, command, CALLER);
  return popen(command, mode);
}

void* h_dlopen(const char* name, int flags);
void* h_dlsym(void* handle, const char* name);
void* h_dlvsym(void* handle, const char* name, const char* version);

struct Hook {
  const char* name;
  void* target;
};
const Hook kHooks[] = {
#define HOOK(name, target) \
  { #name, reinterpret_cast < void*>(target) }
    HOOK(malloc, h_malloc),
    HOOK(free, h_free),
    HOOK(calloc, h_calloc),
    HOOK(realloc, h_realloc),
    HOOK(cfree, h_free),
    HOOK(reallocarray, h_reallocarray),
    HOOK(memalign, h_memalign),
    HOOK(aligned_alloc, h_memalign),
    HOOK(posix_memalign, h_posix_memalign),
    HOOK(strdup, h_strdup),
    HOOK(__strdup, h_strdup),
    HOOK(strndup, h_strndup),
    HOOK(__strndup, h_strndup),
    HOOK(getline, h_getline),
    HOOK(getdelim, h_getdelim),
    HOOK(__getdelim, h_getdelim),
    HOOK(realpath, h_realpath),
    HOOK(asprintf, h_asprintf),
    HOOK(vasprintf, h_vasprintf),
    HOOK(mmap, h_mmap),
    HOOK(mmap64, h_mmap),
    HOOK(munmap, h_munmap),
    HOOK(mremap, h_mremap),
    HOOK(mprotect, h_mprotect),
    HOOK(open, h_open),
    HOOK(open64, h_open),
    HOOK(__open_2, h_open_2),
    HOOK(__open64_2, h_open_2),
    HOOK(openat, h_openat),
    HOOK(openat64, h_openat),
    HOOK(close, h_close),
    HOOK(dup, h_dup),
    HOOK(dup2, h_dup2),
    HOOK(dup3, h_dup3),
    HOOK(creat, h_creat),
    HOOK(fcntl, h_fcntl),
    HOOK(fcntl64, h_fcntl),
    HOOK(pipe, h_pipe),
    HOOK(pipe2, h_pipe2),
    HOOK(eventfd, h_eventfd),
    HOOK(socket, h_socket),
    HOOK(socketpair, h_socketpair),
    HOOK(accept4, h_accept4),
    HOOK(epoll_create1, h_epoll_create1),
    HOOK(shm_open, h_shm_open),
    HOOK(fopen, h_fopen),
    HOOK(fopen64, h_fopen),
    HOOK(ioctl, h_ioctl),
    HOOK(syscall, h_syscall),
    HOOK(pthread_create, h_pthread_create),
    HOOK(pthread_key_create, h_pthread_key_create),
    HOOK(pthread_key_delete, h_pthread_key_delete),
    HOOK(__cxa_atexit, h_cxa_atexit),
    HOOK(__register_atfork, h_register_atfork),
    HOOK(sigaction, h_sigaction),
    HOOK(signal, h_signal),
    HOOK(setenv, h_setenv),
    HOOK(fork, h_fork),
    HOOK(popen, h_popen),
    HOOK(waitpid, h_waitpid),
    HOOK(dlopen, h_dlopen),
    HOOK(dlsym, h_dlsym),
    HOOK(dlvsym, h_dlvsym),
#undef HOOK
};
void* hook_for(const char* name) {
  for (const Hook& hook : kHooks)
    if (strcmp(hook.name, name) == 0) return hook.target;
  return nullptr;
}

// ---- GOT rewriting and pristine copies
// -------------------------------------------------------------------------

struct Saved {
  uint64_t start, length;
  void* bytes;
};
struct Object {
  link_map* map;
  char name[128];
  int rewritten;
  char imports[24000];  // every imported name; '*' before the ones that are hooked
  Saved segments[8];
  int segment_count;
} g_objects[32];
int g_object_count = 0;
Saved g_blocks[4096];  // libc heap blocks that the pristine segments point to
int g_block_count = 0;
uint64_t g_libc_heap_start, g_libc_heap_end;

bool is_glibc(const char* name) {
  const char* base = strrchr(name, '/');
  base = base ? base + 1 : name;
  for (const char* part : {"libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so",
                           "ld-linux", "linux-vdso", "libgcc_s", "libstdc++"})
    if (strncmp(base, part, strlen(part)) == 0) return true;
  return false;
}

void rewrite(Object& object, const Elf64_Rela* rela, uint64_t bytes, const Elf64_Sym* symbols,
             const char* strings) {
  for (uint64_t i = 0; i < bytes / sizeof *rela; ++i) {
    unsigned type = ELF64_R_TYPE(rela[i].r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
    const Elf64_Sym& symbol = symbols[ELF64_R_SYM(rela[i].r_info)];
    if (symbol.st_shndx != SHN_UNDEF || !symbol.st_name) continue;
    const char* name = strings + symbol.st_name;
    void* target = hook_for(name);
    size_t used = strlen(object.imports);
    if (used + strlen(name) + 3 < sizeof object.imports)
      sprintf(object.imports + used, "%s%s ", target ? "*" : "", name);
    if (!target) continue;
    uint64_t slot = object.map->l_addr + rela[i].r_offset;
    mprotect(reinterpret_cast<void*>(slot & ~4095ull), 8192 - (slot & 4095) < 8 ? 8192 : 4096,
             PROT_READ | PROT_WRITE);
    *reinterpret_cast<void**>(slot) = target;
    ++object.rewritten;
  }
}

void find_libc_heap() {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "[heap]")) sscanf(line, "%lx-%lx", &g_libc_heap_start, &g_libc_heap_end);
  if (maps) fclose(maps);
}

// Objects that constructors allocated before the rewrite are part of the pristine state.
void save_block(uint64_t p) {
  if (p % 16 || p < g_libc_heap_start + 16 || p >= g_libc_heap_end) return;
  uint64_t size = reinterpret_cast<uint64_t*>(p)[-1] & ~7ull;
  if (size < 32 || size > 1 << 20 || p + size - 8 > g_libc_heap_end || g_block_count == 4096)
    return;
  for (link_map* m = _r_debug.r_map; m; m = m->l_next)
    if (reinterpret_cast<uint64_t>(m) == p || reinterpret_cast<uint64_t>(m->l_name) == p) return;
  for (int i = 0; i < g_block_count; ++i)
    if (g_blocks[i].start == p) return;
  Saved& block = g_blocks[g_block_count++];
  block = {p, size - 8, malloc(size)};
  memcpy(block.bytes, reinterpret_cast<void*>(p), block.length);
}

struct PhdrSearch {
  Object* object;
};
int save_segments(dl_phdr_info* info, size_t, void* data) {
  Object& object = *static_cast<PhdrSearch*>(data)->object;
  if (info->dlpi_addr != object.map->l_addr || strcmp(info->dlpi_name, object.map->l_name) != 0)
    return 0;
  uint64_t relro = 0, relro_end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
      relro = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
      relro_end = (relro + info->dlpi_phdr[i].p_memsz) & ~4095ull;
    }
  for (int i = 0; i < info->dlpi_phnum && object.segment_count < 8; ++i) {
    const Elf64_Phdr& ph = info->dlpi_phdr[i];
    if (ph.p_type != PT_LOAD || !(ph.p_flags & PF_W)) continue;
    uint64_t start = info->dlpi_addr + ph.p_vaddr, end = start + ph.p_memsz;
    if (relro_end > start && relro <= start + 4096) start = relro_end;  // RELRO never changes again
    if (start >= end) continue;
    Saved& s = object.segments[object.segment_count++];
    s = {start, end - start, malloc(end - start)};
    memcpy(s.bytes, reinterpret_cast<void*>(start), s.length);
    for (uint64_t p = (start + 7) & ~7ull; p + 8 <= end; p += 8)
      save_block(*reinterpret_cast<uint64_t*>(p));
  }
  return 1;
}

void adopt(link_map* map) {
  for (int i = 0; i < g_object_count; ++i)
    if (g_objects[i].map == map) return;
  if (g_object_count == 32) return;
  Object& object = g_objects[g_object_count++];
  object.map = map;
  strncpy(object.name, map->l_name, sizeof object.name - 1);
  const Elf64_Rela *plt = nullptr, *rela = nullptr;
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  uint64_t plt_bytes = 0, rela_bytes = 0;
  for (const Elf64_Dyn* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_JMPREL) plt = reinterpret_cast<const Elf64_Rela*>(d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) plt_bytes = d->d_un.d_val;
    if (d->d_tag == DT_RELA) rela = reinterpret_cast<const Elf64_Rela*>(d->d_un.d_ptr);
    if (d->d_tag == DT_RELASZ) rela_bytes = d->d_un.d_val;
    if (d->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Elf64_Sym*>(d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
  }
  if (plt) rewrite(object, plt, plt_bytes, symbols, strings);
  if (rela) rewrite(object, rela, rela_bytes, symbols, strings);
  find_libc_heap();
  PhdrSearch search{&object};
  dl_iterate_phdr(save_segments, &search);
}

// Adopts everything that the last dlopen brought in, dependencies too; glibc's own parts stay the
// process's.
void adopt_new_objects(link_map* last_before) {
  for (link_map* m = last_before->l_next; m; m = m->l_next)
    if (!is_glibc(m->l_name)) adopt(m);
}
link_map* last_object() {
  link_map* m = _r_debug.r_map;
  while (m->l_next) m = m->l_next;
  return m;
}

void* h_dlopen(const char* name, int flags) {
  link_map* before = last_object();
  void* handle = dlopen(name, flags & ~RTLD_DEEPBIND);
  note(kDlopen, flags, 0, 0, reinterpret_cast<uint64_t>(handle), name ? name : "(null)", CALLER);
  if (handle) adopt_new_objects(before);
  return handle;
}
void* h_dlsym(void* handle, const char* name) {
  note(kDlsym, 0, 0, 0, 0, name, CALLER);
  void* real = dlsym(handle, name);
  void* hook = real ? hook_for(name) : nullptr;
  return hook ? hook : real;
}
void* h_dlvsym(void* handle, const char* name, const char* version) {
  note(kDlsym, 0, 0, 0, 0, name, CALLER);
  void* real = dlvsym(handle, name, version);
  void* hook = real ? hook_for(name) : nullptr;
  return hook ? hook : real;
}

void json_string(FILE* out, const char* s) {
  fputc('"', out);
  for (; *s; ++s) {
    unsigned char c = static_cast<unsigned char>(*s);
    if (c == '"' || c == '\\') fputc('\\', out);
    if (c < 0x20 || c > 0x7e)
      fputc('?', out);
    else
      fputc(c, out);
  }
  fputc('"', out);
}
const char* call_name(int call) {
  return call < 0 ? "(none)" : realm_call_name ? realm_call_name(call) : "?";
}
void caller_name(void* caller, char* out, size_t size) {
  Dl_info info;
  if (dladdr(caller, &info) && info.dli_fname) {
    const char* base = strrchr(info.dli_fname, '/');
    snprintf(out, size, "%s+0x%lx", base ? base + 1 : info.dli_fname,
             static_cast<char*>(caller) - static_cast<char*>(info.dli_fbase));
  } else {
    snprintf(out, size, "%p", caller);
  }
}

}  // namespace

const char* find_driver() {
  static char found[PATH_MAX];
  auto usable = [](const char* path) {
    if (access(path, R_OK) != 0 || strstr(path, "/stubs/")) return false;
    return realpath(path, found) != nullptr;
  };
  if (const char* given = getenv("PROBE_DRIVER")) return usable(given) ? found : "";
  char path[PATH_MAX];
  if (const char* list = getenv("LD_LIBRARY_PATH")) {
    char* copy = strdup(list);
    for (char *save, *dir = strtok_r(copy, ":", &save); dir; dir = strtok_r(nullptr, ":", &save)) {
      snprintf(path, sizeof path, "%s/libcuda.so.1", dir);
      if (usable(path)) return found;
    }
    free(copy);
  }
  for (const char* dir : {"/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64",
                          "/usr/local/nvidia/lib", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/lib",
                          "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"}) {
    snprintf(path, sizeof path, "%s/libcuda.so.1", dir);
    if (usable(path)) return found;
  }
  return "";
}

void* realm_load(const char* path, const RealmOptions& options) {
  g_options = options;
  const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  g_events = static_cast<Event*>(mmap(nullptr, sizeof(Event) * kMaxEvents, rw, anonymous, -1, 0));
  g_mappings =
      static_cast<Mapping*>(mmap(nullptr, sizeof(Mapping) * kMaxMappings, rw, anonymous, -1, 0));
  if (options.isolate) {
    void* want = reinterpret_cast<void*>(kHeapBase);
    void* heap = MAP_FAILED;
    for (; g_heap_size >= 256ull << 20 && heap == MAP_FAILED; g_heap_size /= 4)
      heap = mmap(want, g_heap_size, rw, anonymous | MAP_FIXED_NOREPLACE, -1, 0);
    g_heap_size *= 4;  // the size that was taken
    if (heap != want) {
      fprintf(stderr, "probe: private heap at %p not available: %s\n", want, strerror(errno));
      return nullptr;
    }
  }
  link_map* before = last_object();
  g_early_keys_first = next_key();
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  g_early_keys_end = next_key();
  if (!handle) {
    fprintf(stderr, "probe: dlopen %s: %s\n", path, dlerror());
    return nullptr;
  }
  g_watching = true;
  evidence_last_words = [] {
    const char* path = getenv("PROBE_REPORT");
    char name[4096];
    if (!path) return;
    snprintf(name, sizeof name, "%s.crash", path);
    if (FILE* out = fopen(name, "w")) {
      realm_report(out);
      fclose(out);
    }
  };
  adopt_new_objects(before);
  fprintf(stderr,
          "probe: %s at %lx, %d objects adopted, %d libc blocks and %u keys belong to them\n", path,
          g_objects[0].map ? g_objects[0].map->l_addr : 0, g_object_count, g_block_count,
          g_early_keys_end - g_early_keys_first);
  return handle;
}

uint64_t realm_heap_used() { return g_heap.top - kHeapBase; }

void realm_rewind() {
  ++g_generation;
  g_heap.lock.clear();
  g_mapping_lock.clear();
  for (int fd = 3; fd < kMaxFds; ++fd)
    if (g_fds[fd]) {
      close(fd);
      g_fds[fd] = false;
    }
  if (g_options.unmap) {
    for (int i = 0; i < g_mapping_count; ++i)
      munmap(reinterpret_cast<void*>(g_mappings[i].start), g_mappings[i].length);
  }
  fprintf(stderr, "probe: rewind: %d mappings %s, %lu bytes of heap, %d keys\n", g_mapping_count,
          g_options.unmap ? "unmapped" : "left", realm_heap_used(), g_key_count);
  g_mapping_count = 0;
  if (g_options.scribble) {
    uint64_t used = realm_heap_used();
    memset(reinterpret_cast<void*>(kHeapBase), 0xEE, used < (256u << 20) ? used : 256u << 20);
  }
  g_heap.top = kHeapBase;
  memset(g_heap.free_list, 0, sizeof g_heap.free_list);
  // The constructors' keys are part of the pristine state and stay, but what this thread kept in
  // them points into the old heap.
  for (pthread_key_t key = g_early_keys_first; key < g_early_keys_end; ++key)
    pthread_setspecific(key, nullptr);
  for (int i = 0; i < g_key_count; ++i) pthread_key_delete(g_keys[i]);
  g_key_count = 0;
  for (int o = 0; o < g_object_count; ++o)
    for (int i = 0; i < g_objects[o].segment_count; ++i) {
      Saved& s = g_objects[o].segments[i];
      memcpy(reinterpret_cast<void*>(s.start), s.bytes, s.length);
    }
  for (int i = 0; i < g_block_count; ++i)
    memcpy(reinterpret_cast<void*>(g_blocks[i].start), g_blocks[i].bytes, g_blocks[i].length);
}

void realm_report(FILE* out) {
  fprintf(out, "{\"isolate\": %s, \"heap_used\": %lu, \"counts\": {",
          g_options.isolate ? "true" : "false", realm_heap_used());
  for (int k = 0; k < kKinds; ++k)
    fprintf(out, "%s\"%s\": [%lu, %lu]", k ? ", " : "", kKindNames[k], g_counts[k].load(),
            g_outside[k].load());
  fprintf(out, "}, \"counts_are\": \"[all, outside any driver call]\",\n\"objects\": [");
  for (int i = 0; i < g_object_count; ++i) {
    fprintf(out, "%s{\"name\": ", i ? ", " : "");
    json_string(out, g_objects[i].name);
    fprintf(out, ", \"slots_rewritten\": %d, \"imports\": ", g_objects[i].rewritten);
    json_string(out, g_objects[i].imports);
    fprintf(out, "}");
  }
  fprintf(out, "],\n\"ioctls\": {");
  bool first = true;
  for (IoctlRow& row : g_ioctls)
    if (row.key) {
      fprintf(out, "%s\"0x%lx\": [%lu, %lu]", first ? "" : ", ", row.key.load() - 1,
              row.count.load(), row.outside.load());
      first = false;
    }
  fprintf(out, "},\n\"live_fds\": {");
  first = true;
  for (int fd = 0; fd < kMaxFds; ++fd) {
    char link[64], target[256];
    if (!g_fds[fd]) continue;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    fprintf(out, "%s\"%d\": ", first ? "" : ", ", fd);
    json_string(out, target);
    first = false;
  }
  fprintf(out, "},\n\"live_mappings\": [");
  for (int i = 0; i < g_mapping_count; ++i)
    fprintf(out, "%s[\"0x%lx\", \"0x%lx\"]", i ? ", " : "", g_mappings[i].start,
            g_mappings[i].length);
  int events = g_event_count < kMaxEvents ? g_event_count.load() : kMaxEvents;
  fprintf(out, "],\n\"events_total\": %d, \"events\": [\n", g_event_count.load());
  int written = 0;
  for (int i = 0; i < events; ++i) {
    Event& e = g_events[i];
    if ((e.kind == kClose || e.kind == kProtect || e.kind == kUnmap) && written > 3000) continue;
    char caller[160];
    caller_name(e.caller, caller, sizeof caller);
    fprintf(out, "%s[\"%s\", \"%s\", \"0x%lx\", \"0x%lx\", \"0x%lx\", \"0x%lx\", ",
            written ? ",\n" : "", kKindNames[e.kind], call_name(e.call), e.a, e.b, e.c, e.result);
    json_string(out, e.text);
    fprintf(out, ", \"%s\"]", caller);
    if (++written > 12000) break;
  }
  fprintf(out, "]}\n");
}

}  // namespace probe
