// What the driver calls instead of libc's functions, and the list of those it may call as they are.
//
// Replaced: what allocates or frees memory that changes hands, or grows a buffer of the caller;
// maps memory; opens or closes descriptors; starts threads; leaves handlers behind; looks up other
// functions. libc's own allocations behind a FILE or DIR stay libc's: they are ordinary memory to a
// snapshot.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/text.h"
#include "intercept/doors/doors.h"
#include "intercept/gate/gate.h"
#include "intercept/realm/realm.h"
#include "intercept/realm/realm_internal.h"

namespace gpuckpt::realm_hooks {
namespace {

constinit std::atomic<uint64_t> g_stray{0};
constinit std::atomic<int> g_stray_thread{0};
constinit std::atomic<uint32_t> g_stray_request{0};
constinit char g_devices[512] = "";  // CUDA_VISIBLE_DEVICES in the program's place

void count_stray_ioctl(unsigned long request) {
  if (!gate_closed()) return;
  ThreadRecord* r = this_thread_record();
  if (r && r->depth != 0) return;
  g_stray_thread.store(sys::gettid(), std::memory_order_relaxed);
  g_stray_request.store(static_cast<uint32_t>(request), std::memory_order_relaxed);
  g_stray.fetch_add(1, std::memory_order_relaxed);
}

// -- memory

void* with_errno(void* p) {
  if (!p) errno = ENOMEM;
  return p;
}
void* my_malloc(size_t n) { return with_errno(realm_heap::allocate(n)); }
void* my_calloc(size_t n, size_t each) {
  size_t bytes;
  if (__builtin_mul_overflow(n, each, &bytes)) return with_errno(nullptr);
  return with_errno(realm_heap::allocate_zeroed(bytes));
}
void my_free(void* p) {
  if (!p) return;
  int keep = errno;
  if (realm_heap::contains(p))
    realm_heap::release(p);
  else if (!realm_is_pinned(p))
    free(p);  // libc made it on the driver's behalf (scandir, getaddrinfo ...)
  errno = keep;
}
size_t my_malloc_usable_size(void* p) {
  if (!p) return 0;
  return realm_heap::contains(p) ? realm_heap::usable(p) : malloc_usable_size(p);
}
void* my_realloc(void* p, size_t n) {
  if (!p) return my_malloc(n);
  if (!n) {
    my_free(p);
    return nullptr;
  }
  size_t had = my_malloc_usable_size(p);
  if (realm_heap::contains(p) && n <= had && n * 2 >= had) return p;
  void* fresh = my_malloc(n);
  if (!fresh) return nullptr;
  memcpy(fresh, p, had < n ? had : n);
  my_free(p);
  return fresh;
}
void* my_reallocarray(void* p, size_t n, size_t each) {
  size_t bytes;
  if (__builtin_mul_overflow(n, each, &bytes)) return with_errno(nullptr);
  return my_realloc(p, bytes);
}
void* my_memalign(size_t align, size_t n) { return with_errno(realm_heap::allocate(n, align)); }
int my_posix_memalign(void** out, size_t align, size_t n) {
  if (align < sizeof(void*) || (align & (align - 1))) return EINVAL;
  void* p = realm_heap::allocate(n, align);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}
void* my_valloc(size_t n) { return my_memalign(4096, n); }
void* my_pvalloc(size_t n) { return my_memalign(4096, (n + 4095) & ~size_t{4095}); }
char* my_strndup(const char* s, size_t most) {
  size_t n = strnlen(s, most);
  char* p = static_cast<char*>(my_malloc(n + 1));
  if (!p) return nullptr;
  memcpy(p, s, n);
  p[n] = 0;
  return p;
}
char* my_strdup(const char* s) { return my_strndup(s, SIZE_MAX - 1); }
char* my_realpath(const char* path, char* resolved) {
  if (resolved) return realpath(path, resolved);
  char buffer[PATH_MAX];
  return realpath(path, buffer) ? my_strdup(buffer) : nullptr;
}
char* my_canonicalize(const char* path) { return my_realpath(path, nullptr); }
char* my_getcwd(char* buffer, size_t n) {
  if (buffer) return getcwd(buffer, n);
  char own[PATH_MAX];
  return getcwd(own, sizeof own) ? my_strdup(own) : nullptr;
}
int my_vasprintf(char** out, const char* pattern, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(nullptr, 0, pattern, args);
  char* p = n < 0 ? nullptr : static_cast<char*>(my_malloc(static_cast<size_t>(n) + 1));
  if (p) vsnprintf(p, static_cast<size_t>(n) + 1, pattern, again);
  va_end(again);
  if (p) *out = p;
  return p ? n : -1;
}
int my_asprintf(char** out, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  int n = my_vasprintf(out, pattern, args);
  va_end(args);
  return n;
}
int my_vasprintf_chk(char** out, int, const char* pattern, va_list args) {
  return my_vasprintf(out, pattern, args);
}
int my_asprintf_chk(char** out, int, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  int n = my_vasprintf(out, pattern, args);
  va_end(args);
  return n;
}
// libc's getdelim would realloc a buffer of ours.
ssize_t my_getdelim(char** line, size_t* room, int delimiter, FILE* file) {
  if (!line || !room) {
    errno = EINVAL;
    return -1;
  }
  size_t used = 0;
  flockfile(file);
  for (;;) {
    int c = getc_unlocked(file);
    if (c == EOF) break;
    if (!*line || used + 2 > *room) {
      size_t more = used + 2 < 120 ? 120 : (used + 2) * 2;
      char* bigger = static_cast<char*>(my_realloc(*line, more));
      if (!bigger) {
        funlockfile(file);
        return -1;
      }
      *line = bigger;
      *room = more;
    }
    (*line)[used++] = static_cast<char>(c);
    if (c == delimiter) break;
  }
  funlockfile(file);
  if (!used) return -1;
  (*line)[used] = 0;
  return static_cast<ssize_t>(used);
}
ssize_t my_getline(char** line, size_t* room, FILE* file) {
  return my_getdelim(line, room, '\n', file);
}

// -- mappings

void* my_mmap(void* at, size_t n, int prot, int flags, int fd, off_t offset) {
  return realm_maps::map(at, n, prot, flags, fd, offset);
}
void* my_mremap(void* at, size_t old_bytes, size_t bytes, int flags, ...) {
  va_list args;
  va_start(args, flags);
  void* to = flags & MREMAP_FIXED ? va_arg(args, void*) : nullptr;
  va_end(args);
  return realm_maps::remap(at, old_bytes, bytes, flags, to);
}

// System V shared memory: the kernel knows the length of a segment, not where it ends in us.
void* my_shmat(int id, const void* at, int flags) {
  struct shmid_ds about;
  void* p = shmat(id, at, flags);
  if (p != reinterpret_cast<void*>(-1) && shmctl(id, IPC_STAT, &about) == 0) {
    realm_maps::attached(p, about.shm_segsz);
  }
  return p;
}
int my_shmdt(const void* at) {
  realm_maps::detached(at);
  return shmdt(at);
}

// -- descriptors

bool takes_mode(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }
#define MODE_OF(flags)                                      \
  mode_t mode = 0;                                          \
  if (takes_mode(flags)) {                                  \
    va_list args;                                           \
    va_start(args, flags);                                  \
    mode = static_cast<mode_t>(va_arg(args, unsigned int)); \
    va_end(args);                                           \
  }
char* my_getenv(const char* name) {
  if (g_devices[0] && equal(name, "CUDA_VISIBLE_DEVICES")) return g_devices;
  return getenv(name);
}

int my_open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return realm_fds::opened(open(path, flags, mode));
}
int my_openat(int folder, const char* path, int flags, ...) {
  MODE_OF(flags)
  return realm_fds::opened(openat(folder, path, flags, mode));
}
int my_open_2(const char* path, int flags) { return realm_fds::opened(open(path, flags, 0)); }
int my_openat_2(int folder, const char* path, int flags) {
  return realm_fds::opened(openat(folder, path, flags, 0));
}
int my_creat(const char* path, mode_t mode) { return realm_fds::opened(creat(path, mode)); }
int my_close(int fd) {
  realm_fds::closed(fd);
  return close(fd);
}
int my_dup(int fd) { return realm_fds::opened(dup(fd)); }
int my_dup2(int from, int to) { return realm_fds::opened(dup2(from, to)); }
int my_dup3(int from, int to, int flags) { return realm_fds::opened(dup3(from, to, flags)); }
int my_fcntl(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  void* arg = va_arg(args, void*);
  va_end(args);
  int rc = fcntl(fd, command, arg);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) realm_fds::opened(rc);
  return rc;
}
int my_socket(int a, int b, int c) { return realm_fds::opened(socket(a, b, c)); }
int pair(int rc, int* fds) {
  if (rc == 0) {
    realm_fds::opened(fds[0]);
    realm_fds::opened(fds[1]);
  }
  return rc;
}
int my_socketpair(int a, int b, int c, int* fds) { return pair(socketpair(a, b, c, fds), fds); }
int my_pipe(int* fds) { return pair(pipe(fds), fds); }
int my_pipe2(int* fds, int flags) { return pair(pipe2(fds, flags), fds); }
int my_accept(int fd, struct sockaddr* a, socklen_t* n) {
  return realm_fds::opened(accept(fd, a, n));
}
int my_accept4(int fd, struct sockaddr* a, socklen_t* n, int flags) {
  return realm_fds::opened(accept4(fd, a, n, flags));
}
int my_eventfd(unsigned int n, int flags) { return realm_fds::opened(eventfd(n, flags)); }
int my_epoll_create(int n) { return realm_fds::opened(epoll_create(n)); }
int my_epoll_create1(int flags) { return realm_fds::opened(epoll_create1(flags)); }
int my_timerfd_create(int clock, int flags) {
  return realm_fds::opened(timerfd_create(clock, flags));
}
int my_signalfd(int fd, const sigset_t* mask, int flags) {
  return realm_fds::opened(signalfd(fd, mask, flags));
}
int my_inotify_init() { return realm_fds::opened(inotify_init()); }
int my_inotify_init1(int flags) { return realm_fds::opened(inotify_init1(flags)); }
int my_memfd_create(const char* name, unsigned int flags) {
  return realm_fds::opened(memfd_create(name, flags));
}
int my_shm_open(const char* name, int flags, mode_t mode) {
  return realm_fds::opened(shm_open(name, flags, mode));
}
int my_mkstemp(char* name) { return realm_fds::opened(mkstemp(name)); }
FILE* opened_file(FILE* f) {
  if (f) realm_fds::opened(fileno(f));
  return f;
}
FILE* my_fopen(const char* path, const char* mode) { return opened_file(fopen(path, mode)); }
FILE* my_tmpfile() { return opened_file(tmpfile()); }
int my_fclose(FILE* f) {
  realm_fds::closed(fileno(f));
  return fclose(f);
}

// -- kernel

int my_ioctl(int fd, unsigned long request, ...) {
  va_list args;
  va_start(args, request);
  void* arg = va_arg(args, void*);
  va_end(args);
  count_stray_ioctl(request);
  return ioctl(fd, request, arg);
}
long my_syscall(long nr, long a, long b, long c, long d, long e, long f) {
  if (nr == SYS_ioctl) count_stray_ioctl(static_cast<unsigned long>(b));
  switch (nr) {
    case SYS_mmap:
      return reinterpret_cast<long>(realm_maps::map(reinterpret_cast<void*>(a),
                                                    static_cast<size_t>(b), static_cast<int>(c),
                                                    static_cast<int>(d), static_cast<int>(e), f));
    case SYS_munmap:
      return realm_maps::unmap(reinterpret_cast<void*>(a), static_cast<size_t>(b));
    case SYS_close:
      realm_fds::closed(static_cast<int>(a));
      break;
    default:
      break;
  }
  long rc = syscall(nr, a, b, c, d, e, f);
  switch (nr) {
    case SYS_open:
    case SYS_openat:
    case SYS_memfd_create:
    case SYS_eventfd2:
    case SYS_socket:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
    case SYS_userfaultfd:
    case SYS_pidfd_open:
    case SYS_epoll_create1:
    case SYS_timerfd_create:
      realm_fds::opened(static_cast<int>(rc));
      break;
    default:
      break;
  }
  return rc;
}

// -- threads

int my_pthread_join(pthread_t thread, void** result) {
  int rc = pthread_join(thread, result);
  if (rc == 0) realm_threads::ended(thread);
  return rc;
}
[[noreturn]] void my_pthread_exit(void* result) {
  realm_threads::ended(pthread_self());
  pthread_exit(result);
}

// -- looking up

void* my_dlsym(void* handle, const char* name) {
  bool reviewed;
  void* mine = replacement(name, &reviewed);
  return mine ? mine : dlsym(handle, name);
}
void* my_dlvsym(void* handle, const char* name, const char* version) {
  bool reviewed;
  void* mine = replacement(name, &reviewed);
  return mine ? mine : dlvsym(handle, name, version);
}
void* my_dlopen(const char* file, int mode) {
  const char* base = file ? strrchr(file, '/') : nullptr;
  base = base ? base + 1 : file;
  if (!base || !starts_with(base, "libnvidia-")) return real_dlopen()(file, mode);
  void* handle = realm_dlopen(file, mode);
  if (handle) realm_adopt_object(handle);
  return handle;
}
// In a namespace of its own a library has a libc of its own, which is not rewound with the driver.
// NVIDIA's imports the function and has not been seen to call it.
void* my_dlmopen(Lmid_t space, const char* file, int mode) {
  if (space == LM_ID_BASE) return my_dlopen(file, mode);
  void* handle = dlmopen(space, file, mode);
  if (handle)
    log_line(LogLevel::kWarn,
             "gpuckpt: the driver has loaded %s into a namespace of its own (dlmopen); a restore "
             "does not rewind it",
             file);
  return handle;
}
// The driver stays where it is for ever, and so do its libraries.
int my_dlclose(void*) { return 0; }

struct Replaced {
  const char* name;
  void* function;
};
#define R(name, function) \
  { name, reinterpret_cast<void*>(&function) }
const Replaced kReplaced[] = {
    R("malloc", my_malloc),
    R("calloc", my_calloc),
    R("realloc", my_realloc),
    R("free", my_free),
    R("cfree", my_free),
    R("reallocarray", my_reallocarray),
    R("memalign", my_memalign),
    R("aligned_alloc", my_memalign),
    R("posix_memalign", my_posix_memalign),
    R("valloc", my_valloc),
    R("pvalloc", my_pvalloc),
    R("malloc_usable_size", my_malloc_usable_size),
    R("strdup", my_strdup),
    R("__strdup", my_strdup),
    R("strndup", my_strndup),
    R("__strndup", my_strndup),
    R("realpath", my_realpath),
    R("canonicalize_file_name", my_canonicalize),
    R("getcwd", my_getcwd),
    R("vasprintf", my_vasprintf),
    R("asprintf", my_asprintf),
    R("__asprintf", my_asprintf),
    R("__vasprintf_chk", my_vasprintf_chk),
    R("__asprintf_chk", my_asprintf_chk),
    R("getdelim", my_getdelim),
    R("__getdelim", my_getdelim),
    R("getline", my_getline),
    R("mmap", my_mmap),
    R("mmap64", my_mmap),
    R("munmap", realm_maps::unmap),
    R("mremap", my_mremap),
    R("mprotect", realm_maps::protect),
    R("shmat", my_shmat),
    R("shmdt", my_shmdt),
    R("open", my_open),
    R("open64", my_open),
    R("openat", my_openat),
    R("openat64", my_openat),
    R("__open_2", my_open_2),
    R("__open64_2", my_open_2),
    R("__openat_2", my_openat_2),
    R("__openat64_2", my_openat_2),
    R("creat", my_creat),
    R("creat64", my_creat),
    R("close", my_close),
    R("dup", my_dup),
    R("dup2", my_dup2),
    R("dup3", my_dup3),
    R("fcntl", my_fcntl),
    R("fcntl64", my_fcntl),
    R("socket", my_socket),
    R("socketpair", my_socketpair),
    R("pipe", my_pipe),
    R("pipe2", my_pipe2),
    R("accept", my_accept),
    R("accept4", my_accept4),
    R("eventfd", my_eventfd),
    R("epoll_create", my_epoll_create),
    R("epoll_create1", my_epoll_create1),
    R("timerfd_create", my_timerfd_create),
    R("signalfd", my_signalfd),
    R("inotify_init", my_inotify_init),
    R("inotify_init1", my_inotify_init1),
    R("memfd_create", my_memfd_create),
    R("shm_open", my_shm_open),
    R("mkstemp", my_mkstemp),
    R("mkstemp64", my_mkstemp),
    R("fopen", my_fopen),
    R("fopen64", my_fopen),
    R("tmpfile", my_tmpfile),
    R("tmpfile64", my_tmpfile),
    R("fclose", my_fclose),
    R("ioctl", my_ioctl),
    R("syscall", my_syscall),
    R("pthread_create", realm_threads::create),
    R("pthread_join", my_pthread_join),
    R("pthread_exit", my_pthread_exit),
    R("pthread_key_create", realm_threads::key_create),
    R("pthread_key_delete", realm_threads::key_delete),
    R("__cxa_atexit", realm_threads::at_exit),
    R("__register_atfork", realm_threads::register_atfork),
    R("getenv", my_getenv),
    R("secure_getenv", my_getenv),
    R("__secure_getenv", my_getenv),
    R("dlsym", my_dlsym),
    R("dlvsym", my_dlvsym),
    R("dlopen", my_dlopen),
    R("dlmopen", my_dlmopen),
    R("dlclose", my_dlclose),
};
#undef R

// May be called as they are: they keep nothing of the caller's, or what they keep is libc's or the
// kernel's and of no use to a later generation. Names ending in * stand for all with that
// beginning. Sorted by subject.
// clang-format off
const char* const kPlain[] = {
    // compiler and start-up
    "__cxa_finalize", "__gmon_start__", "_ITM_*", "_Jv_RegisterClasses", "__stack_chk_fail",
    "__errno_location", "__h_errno_location", "__assert_fail", "abort", "exit", "_exit",
    "_Exit", "__tls_get_addr", "__fdelt_chk", "__fortify_fail", "__chk_fail",
    "__libc_current_sigrt*", "__libc_start_main", "environ", "__environ", "_environ",
    "program_invocation*", "__progname*",
    // bytes and text
    "mem*", "__mem*", "str*", "__str*", "stp*", "__stp*", "bcmp", "bcopy", "bzero", "index",
    "rindex", "ffs*", "ato*", "to*", "is*", "__ctype_*", "wcs*", "__wcs*", "wmem*", "wc*",
    "__wc*", "mb*", "btowc", "wctob", "__isoc99_*", "__isoc23_*", "sscanf", "vsscanf",
    "snprintf", "vsnprintf", "sprintf", "vsprintf", "__s*printf_chk", "__snprintf_chk",
    "__vsnprintf_chk", "__sprintf_chk", "__vsprintf_chk", "swprintf", "vswprintf", "iconv*",
    "nl_langinfo*", "basename", "__xpg_basename", "dirname", "qsort*", "bsearch", "l*find",
    "lsearch", "hcreate*", "hsearch*", "tfind", "tsearch", "tdelete", "twalk", "tdestroy",
    "htons", "htonl", "ntohs", "ntohl", "inet_*", "getopt*", "opt*", "abs", "labs", "llabs",
    "div", "ldiv", "a64l", "l64a", "rand*", "srand*", "random*", "srandom*", "drand48*",
    "erand48*", "lrand48*", "srand48*", "getrandom", "getentropy", "arc4random*", "locale*",
    "setlocale", "newlocale", "freelocale", "uselocale", "duplocale", "crypt",
    // arithmetic
    "sin*", "cos*", "tan*", "asin*", "acos*", "atan*", "sqrt*", "cbrt*", "exp*", "log*", "pow*",
    "fmod*", "floor*", "ceil*", "round*", "trunc*", "rint*", "lrint*", "lround*", "llr*",
    "nearbyint*", "frexp*", "ldexp*", "modf*", "fma*", "fmin*", "fmax*", "fabs*", "fdim*",
    "hypot*", "erf*", "lgamma*", "tgamma*", "j0*", "j1*", "jn*", "y0*", "y1*", "yn*",
    "remainder*", "remquo*", "nan*", "scal*", "nextafter*", "ilogb*", "copysign*", "__finite*",
    "__isnan*", "__isinf*", "__signbit*", "__fpclassify*", "fe*", "__*_finite",
    // files and folders by name or descriptor
    "read", "__read_chk", "readv", "pread*", "__pread*", "write", "writev", "pwrite*", "lseek*",
    "stat*", "fstat*", "lstat*", "__xstat*", "__fxstat*", "__lxstat*", "__xmknod*", "mknod*",
    "access", "faccessat", "euidaccess", "chmod", "fchmod*", "chown", "fchown*", "lchown",
    "unlink*", "rename*", "link*", "symlink*", "readlink*", "__readlink_chk", "mkdir*", "rmdir",
    "remove", "truncate*", "ftruncate*", "fallocate*", "posix_fallocate*", "posix_fadvise*",
    "posix_madvise", "fsync", "fdatasync", "sync*", "flock", "lockf*", "umask", "utime*",
    "futime*", "chdir", "fchdir", "opendir", "fdopendir", "readdir*", "closedir", "rewinddir",
    "seekdir", "telldir", "dirfd", "scandir*", "alphasort*", "versionsort*", "glob*", "ftw*",
    "nftw*", "mkdtemp", "mkfifo*", "mktemp", "shm_unlink", "pathconf", "fpathconf", "isatty",
    "ttyname*", "ctermid", "sendfile*", "splice", "copy_file_range", "getmnt*", "setmntent",
    "endmntent", "hasmntopt", "name_to_handle_at",
    // stdio on files already open
    "f*printf", "fprintf", "vfprintf", "printf", "vprintf", "__fprintf_chk", "__vfprintf_chk",
    "__printf_chk", "__vprintf_chk", "dprintf", "vdprintf", "__dprintf_chk", "__vdprintf_chk",
    "puts", "putc*", "putchar*", "fput*", "fget*", "__fgets*", "get*", "_IO_*", "fread*",
    "__fread*", "fwrite*", "fseek*", "ftell*", "fflush*", "feof*", "ferror*", "fileno*",
    "clearerr*", "rewind", "fsetpos*", "fgetpos*", "setbuf", "setvbuf", "setlinebuf", "ungetc",
    "fscanf", "vfscanf", "scanf", "stdin", "stdout", "stderr", "perror", "fdopen", "freopen*",
    "fmemopen", "open_memstream", "flockfile", "funlockfile", "getc*", "err*", "warn*",
    "psignal",
    // time, identity, environment, limits
    "time", "clock*", "gettimeofday", "settimeofday", "localtime*", "gmtime*", "mktime",
    "timegm", "timelocal", "asctime*", "ctime*", "difftime", "nanosleep", "usleep", "sleep",
    "alarm", "ualarm", "times", "tz*", "daylight", "timezone", "timer_*", "setitimer", "setenv",
    "putenv", "unsetenv", "clearenv", "set*id",
    "set*groups", "initgroups", "sysconf", "confstr", "uname", "sysinfo", "syslog", "openlog",
    "closelog", "__syslog_chk", "vsyslog", "prlimit*", "setrlimit*", "gnu_get_libc_*", "prctl",
    "personality", "sched_*", "__sched_*", "cpu*", "__cpu*", "nice", "setpriority", "capget",
    "capset", "get_nprocs*",
    // memory advice that moves nothing
    "madvise", "mlock*", "munlock*", "mincore", "msync", "malloc_trim", "mallopt", "mallinfo*",
    "mbind", "set_mempolicy", "get_mempolicy", "process_vm_*",
    // signals and processes
    "sig*", "__sig*", "raise", "kill", "killpg", "tgkill", "fork", "vfork", "exec*",
    "posix_spawn*", "wait*", "system", "popen", "pclose", "daemon", "ptrace", "__fork",
    "__vfork", "_setjmp", "setjmp", "__sigsetjmp", "longjmp", "__longjmp_chk", "_longjmp",
    "siglongjmp", "getcontext", "makecontext", "setcontext", "swapcontext",
    // sockets and waiting
    "bind", "setsockopt", "connect", "listen", "send*", "recv*", "__recv*", "shutdown",
    "socketatmark", "poll", "__poll_chk", "ppoll", "select", "pselect", "epoll_ctl",
    "epoll_wait*", "epoll_pwait*", "eventfd_*", "timerfd_*time", "inotify_*watch",
    "gai_strerror", "freeaddrinfo", "freeifaddrs", "if_*", "gethostby*", "herror", "hstrerror",
    // threads: what is waited on or locked is memory of the driver
    "pthread_mutex*", "pthread_cond*", "pthread_rwlock*", "pthread_spin*", "pthread_barrier*",
    "pthread_once", "pthread_self", "pthread_equal", "pthread_attr*", "pthread_get*",
    "pthread_set*", "pthread_detach", "pthread_cancel", "pthread_testcancel", "pthread_sigmask",
    "pthread_kill", "pthread_yield", "pthread_timedjoin_np", "pthread_tryjoin_np",
    "__pthread_*", "_pthread_*", "pthread_sigqueue", "sem_*", "mtx_*", "cnd_*", "tss_*",
    "thrd_*", "call_once", "shmget", "shmctl", "semget", "semop", "semctl", "mq_*", "aio_*",
    "lio_*",
    // loader
    "dlerror", "dladdr*", "dlinfo", "dl_iterate_phdr", "_dl_*", "backtrace*", "__backtrace*",
    "_Unwind_*", "__gcc_personality_v0", "__register_frame*", "__deregister_frame*",
};
// clang-format on

// "abc*" matches what begins so; "__*_finite" what begins and ends so.
bool matches(const char* pattern, const char* name) {
  const char* star = strchr(pattern, '*');
  if (!star) return strcmp(pattern, name) == 0;
  size_t head = static_cast<size_t>(star - pattern), tail = strlen(star + 1), n = strlen(name);
  return n >= head + tail && strncmp(pattern, name, head) == 0 &&
         strcmp(name + n - tail, star + 1) == 0;
}

}  // namespace

void* replacement(const char* import, bool* reviewed) {
  *reviewed = true;
  for (const Replaced& r : kReplaced)
    if (strcmp(r.name, import) == 0) return r.function;
  for (const char* p : kPlain)
    if (matches(p, import)) return nullptr;
  *reviewed = false;
  return nullptr;
}

StrayIoctls stray_ioctls() {
  return {g_stray.load(std::memory_order_relaxed), g_stray_thread.load(std::memory_order_relaxed),
          g_stray_request.load(std::memory_order_relaxed)};
}

}  // namespace gpuckpt::realm_hooks

namespace gpuckpt {
StrayIoctls realm_stray_ioctls() { return realm_hooks::stray_ioctls(); }
const char* realm_visible_devices() { return realm_hooks::my_getenv("CUDA_VISIBLE_DEVICES"); }
void realm_show_devices(const char* list) {
  copy(realm_hooks::g_devices, sizeof realm_hooks::g_devices, list);
}
}  // namespace gpuckpt
