#include "snapshot/control/worker.h"

#include <pthread.h>

#include "base/syscall.h"

namespace gpuckpt {
namespace {
struct Work {
  void (*run)(void*);
  void* argument;
};
// glibc sends signal 33 to every pthread when one calls setuid or setgid, and waits for each: it
// must get through here, although the coordinator, whose mask this thread has, blocks everything.
constexpr uint64_t kSetIdSignal = 1ull << (33 - 1);

void* start(void* w) {
  block_signals();
  static_cast<Work*>(w)->run(static_cast<Work*>(w)->argument);
  return nullptr;
}
}  // namespace

void block_signals() { sys::sigprocmask_set(~kSetIdSignal); }

bool run_on_pthread(void (*work)(void*), void* argument) {
  Work w{work, argument};
  pthread_t thread;
  // A process's first one has glibc take its own two signals off the caller's mask, of which one is
  // ours as well (wire::kWakeSignal).
  const uint64_t mask = sys::sigprocmask_all();
  const bool made = pthread_create(&thread, nullptr, start, &w) == 0;
  sys::sigprocmask_set(mask);
  if (made) pthread_join(thread, nullptr);
  return made;
}

}  // namespace gpuckpt
