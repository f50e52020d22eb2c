#include "snapshot/memory/own_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/address.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {

// Where process_vm_readv is forbidden (old container filters): the kernel copies into a pipe.
uint64_t copy_through_pipe(char* to, const char* from, uint64_t bytes) {
  int ends[2];
  if (sys::failed(sys::call(SYS_pipe2, sys::ptr(ends), O_CLOEXEC | O_NONBLOCK))) return 0;
  uint64_t done = 0;
  while (done < bytes) {
    const long in =
        sys::call(SYS_write, ends[1], sys::ptr(from + done), static_cast<long>(bytes - done));
    if (sys::failed(in) || in == 0) break;
    long out = 0;
    for (long n = 1; out < in && n > 0; out += n)
      n = sys::call(SYS_read, ends[0], sys::ptr(to + done + out), in - out);
    done += static_cast<uint64_t>(in);
  }
  sys::close(ends[0]);
  sys::close(ends[1]);
  return done;
}

}  // namespace

void populate_memory(uint64_t start, uint64_t bytes) {
  constexpr uint64_t kStep = 2ull << 20;
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
  sys::call(SYS_madvise, static_cast<long>(start), static_cast<long>(bytes), MADV_HUGEPAGE);
  for (uint64_t step; bytes; start += step, bytes -= step) {
    step = bytes < kStep ? bytes : kStep;
    if (sys::failed(sys::call(SYS_madvise, static_cast<long>(start), static_cast<long>(step),
                              kPopulateWrite)))
      for (uint64_t at = start; at < start + step; at += kPage) *reinterpret_cast<char*>(at) = 0;
  }
}

long copy_unpinned(int memory, void* to, const iovec* from, size_t count) {
  auto* out = static_cast<char*>(to);
  long done = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto at = reinterpret_cast<uint64_t>(from[i].iov_base);
    const long got = sys::pread(memory, out + done, from[i].iov_len, at);
    if (got > 0) done += got;
    if (got != static_cast<long>(from[i].iov_len)) return done;
  }
  return done;
}

uint64_t copy_own_memory(void* to, const void* from, uint64_t bytes) {
  constexpr uint64_t kAtOnce = 1 << 30;  // the kernel takes less than 2 GiB
  auto* out = static_cast<char*>(to);
  auto* in = static_cast<const char*>(from);
  const long pid = sys::call(SYS_getpid);
  for (uint64_t done = 0;;) {
    if (done == bytes) return done;
    const uint64_t n = bytes - done < kAtOnce ? bytes - done : kAtOnce;
    iovec local{out + done, n}, remote{const_cast<char*>(in) + done, n};
    const long got =
        sys::call(SYS_process_vm_readv, pid, sys::ptr(&local), 1, sys::ptr(&remote), 1, 0);
    if (got == -1 /* EPERM */ || got == -38 /* ENOSYS */)
      return done + copy_through_pipe(out + done, in + done, bytes - done);
    if (sys::failed(got) || got == 0) return done;
    done += static_cast<uint64_t>(got);
  }
}

}  // namespace gpuckpt
