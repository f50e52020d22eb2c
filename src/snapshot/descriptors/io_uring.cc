// io_uring: the kernel's side of a ring cannot be read, so a snapshot of a program that has one is
// refused. Programs that use it can do without (older kernels and most containers have none): under
// gpuckpt they are told that there is none, unless GPUCKPT_IO_URING=on. They ask through `syscall`
// of libc (libuv, tokio's io-uring crate), or through liburing, which makes its system calls
// itself; any other process that does so gets its ring.

#include <dlfcn.h>
#include <errno.h>

#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/control/state.h"

using namespace gpuckpt;

namespace {
template <typename Fn>
Fn next(const char* name) {
  return library.config.io_uring ? reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name)) : nullptr;
}
}  // namespace

extern "C" long gpuckpt_io_uring_setup(long number, unsigned entries, void* parameters) {
  if (library.config.io_uring) return gpuckpt_real_syscall(number, entries, parameters);
  errno = ENOSYS;
  return -1;
}

// liburing's.
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int io_uring_setup(unsigned entries, void* parameters) {
  auto real = next<int (*)(unsigned, void*)>("io_uring_setup");
  return real ? real(entries, parameters) : -ENOSYS;
}
EXPORT int io_uring_queue_init(unsigned entries, void* ring, unsigned flags) {
  auto real = next<int (*)(unsigned, void*, unsigned)>("io_uring_queue_init");
  return real ? real(entries, ring, flags) : -ENOSYS;
}
EXPORT int io_uring_queue_init_params(unsigned entries, void* ring, void* parameters) {
  auto real = next<int (*)(unsigned, void*, void*)>("io_uring_queue_init_params");
  return real ? real(entries, ring, parameters) : -ENOSYS;
}
EXPORT int io_uring_queue_init_mem(unsigned entries, void* ring, void* parameters, void* memory,
                                   unsigned long bytes) {
  auto real =
      next<int (*)(unsigned, void*, void*, void*, unsigned long)>("io_uring_queue_init_mem");
  return real ? real(entries, ring, parameters, memory, bytes) : -ENOSYS;
}
