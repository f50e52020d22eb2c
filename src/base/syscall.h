// Raw system calls: no errno, no cancellation points, no libc state. Safe while application threads
// are parked, in the copied child and in the restore entry.
//
// Owner: none. Threads: any. Errors: a failed call returns -errno.
#pragma once

#include <sys/syscall.h>
#include <cstddef>
#include <cstdint>

namespace gpuckpt::sys {

inline long call(long nr, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

inline bool failed(long result) { return static_cast<unsigned long>(result) > -4096UL; }

template <typename P>
inline long ptr(P* p) {
  return reinterpret_cast<long>(p);
}

inline int open(const char* path, int flags, int mode = 0) {
  return static_cast<int>(call(SYS_openat, -100, ptr(path), flags, mode));
}
inline int close(int fd) { return static_cast<int>(call(SYS_close, fd)); }
inline long read(int fd, void* to, size_t n) { return call(SYS_read, fd, ptr(to), n); }
inline long write(int fd, const void* from, size_t n) { return call(SYS_write, fd, ptr(from), n); }
inline long pread(int fd, void* to, size_t n, uint64_t at) {
  return call(SYS_pread64, fd, ptr(to), n, static_cast<long>(at));
}
inline long mmap(uint64_t at, size_t n, int prot, int flags, int fd = -1, uint64_t offset = 0) {
  return call(SYS_mmap, static_cast<long>(at), n, prot, flags, fd, static_cast<long>(offset));
}
inline long munmap(uint64_t at, size_t n) { return call(SYS_munmap, static_cast<long>(at), n); }
inline int getpid() { return static_cast<int>(call(SYS_getpid)); }
inline int gettid() { return static_cast<int>(call(SYS_gettid)); }
// prctl(PR_FUTEX_HASH, ...), Linux 6.16.
inline constexpr long kFutexHash = 78, kSetFutexHashSlots = 1, kGetFutexHashSlots = 2;
[[noreturn]] inline void exit_thread(int status) {
  for (;;) call(SYS_exit, status);
}
[[noreturn]] inline void exit_group(int status) {
  for (;;) call(SYS_exit_group, status);
}

struct Timespec {
  int64_t sec, nsec;
};
inline uint64_t now_us(int clock = 1 /* CLOCK_MONOTONIC */) {
  Timespec t{};
  call(SYS_clock_gettime, clock, ptr(&t));
  return static_cast<uint64_t>(t.sec) * 1000000 + static_cast<uint64_t>(t.nsec) / 1000;
}
inline void sleep_us(uint64_t us) {
  Timespec t{static_cast<int64_t>(us / 1000000), static_cast<int64_t>(us % 1000000) * 1000};
  call(SYS_nanosleep, ptr(&t));
}

// Futexes on 32-bit words. `wait` returns at once when *word != expected; us = 0 waits for ever.
inline long futex_wait(const void* word, uint32_t expected, uint64_t us, bool shared = false) {
  Timespec t{static_cast<int64_t>(us / 1000000), static_cast<int64_t>(us % 1000000) * 1000};
  return call(SYS_futex, ptr(word), shared ? 0 : 128, expected, us ? ptr(&t) : 0);
}
inline long futex_wake(const void* word, int count, bool shared = false) {
  return call(SYS_futex, ptr(word), shared ? 1 : 129, count);
}

// The kernel's own struct sigaction.
struct Sigaction {
  uint64_t handler, flags, restorer, mask;
};
inline long sigaction(int sig, const Sigaction* act, Sigaction* old) {
  return call(SYS_rt_sigaction, sig, ptr(act), ptr(old), 8);
}
inline uint64_t sigprocmask_all() {
  uint64_t all = ~0ull, old = 0;
  call(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, ptr(&all), ptr(&old), 8);
  return old;
}
inline void sigprocmask_set(uint64_t mask) {
  call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, ptr(&mask), 0, 8);
}

}  // namespace gpuckpt::sys
