// The probe does what a restore does before application threads run (create and join a pthread,
// allocate, look up a symbol, open and close a stream, print an error), on a bare thread of the
// copy that borrows the coordinator's thread descriptor. The lock of a stream of the program's own
// is no matter: a thread that waits for standard input in fgets() holds one all the time.
#include "snapshot/park/libc_probe.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/syscall.h"
#include "snapshot/control/state.h"
#include "snapshot/park/raw_thread.h"

namespace gpuckpt {
namespace {

// Written by the probe's threads; libc_is_free() runs once at a time.
std::atomic<uint32_t> answered;
std::atomic<uint32_t> probe_tid;

void* other_thread(void*) {
  void* volatile p[8];
  for (int i = 0; i < 8; ++i) p[i] = malloc(static_cast<size_t>(24) << i * 2);
  for (int i = 0; i < 8; ++i) free(p[i]);
  return dlsym(RTLD_DEFAULT, "malloc");
}

void probe(void*) {
  *reinterpret_cast<int*>(library.coordinator_tls + library.tid_offset) = sys::gettid();
  void* volatile block = malloc(1 << 20);
  free(block);
  if (FILE* stream = fopen("/dev/null", "re")) fclose(stream);
  flockfile(stderr);
  funlockfile(stderr);
  pthread_t t;
  if (pthread_create(&t, nullptr, other_thread, nullptr) == 0) {
    pthread_join(t, nullptr);
    answered = 1;
    sys::futex_wake(&answered, 1);
  }
  sys::exit_thread(0);
}

}  // namespace

bool libc_is_free() {
  answered = 0;
  constexpr uint64_t flags =
      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS;
  // The stack for starting the writer is free now; the coordinator's own holds what is still being
  // sent.
  uint64_t stack = library.stacks.start + library.stacks.bytes;
  long tid = clone_raw(flags, stack, probe, nullptr, nullptr, nullptr, library.coordinator_tls);
  if (sys::failed(tid)) return false;
  uint64_t deadline = sys::now_us() + 300000;
  while (!answered && sys::now_us() < deadline) sys::futex_wait(&answered, 0, 20000);
  return answered != 0;
}

}  // namespace gpuckpt
