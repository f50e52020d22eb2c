#include "snapshot/calls/signal_stacks.h"

#include <errno.h>
#include <signal.h>

#include <atomic>

#include "base/syscall.h"
#include "snapshot/calls/app_signals.h"
#include "snapshot/calls/borrowed_memory.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
namespace {

constexpr size_t kSets = 512, kPlaces = 16;
// A stack and the thread that was given it last. Of more stacks in a set than it has places some
// are forgotten: what is looked for is one that many threads have.
struct Known {
  std::atomic<uint64_t> start;  // 0: the place is free
  std::atomic<int> tid;
} known[kSets][kPlaces];
std::atomic<bool> in_common;
[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t t_start = 0;

bool is_alive(int tid) { return !sys::failed(sys::call(SYS_tgkill, sys::getpid(), tid, 0)); }

Known* set_of(uint64_t start) {
  return known[(start >> 4) * 0x9e3779b97f4a7c15ull >> 55];  // 9 bits: kSets
}

// The place of this stack; a new one if there is none. (Two threads that look for one at the same
// time come to the same: each takes the first that is free, and looks again if it was too late.)
Known* place_of(uint64_t start) {
  Known* const set = set_of(start);
  for (;;) {
    Known* free = nullptr;
    for (Known* k = set; k < set + kPlaces; ++k) {
      const uint64_t found = k->start;
      if (found == start) return k;
      const int tid = k->tid;
      if (!free && (found == 0 || (tid && !is_alive(tid)))) free = k;
    }
    if (!free) free = set + (start >> 12) % kPlaces;
    uint64_t before = free->start;
    if (free->start.compare_exchange_strong(before, start)) return free;
  }
}

void note(uint64_t start, int tid) {
  const int other = place_of(start)->tid.exchange(tid);
  if (!other || other == tid || in_common || !is_alive(other)) return;
  in_common = true;
  if (!library.ready) return;
  install_wake_handler();
  listen_on_own_stacks();
}

// Before its memory is another thread's.
void forget(uint64_t start, int tid) {
  Known* const set = set_of(start);
  for (Known* k = set; k < set + kPlaces; ++k) {
    uint64_t found = start;
    int its = tid;
    if (k->start == start && k->tid.compare_exchange_strong(its, 0))
      k->start.compare_exchange_strong(found, 0);
  }
}

void changed() {
  stack_t now{};
  if (library.deaf || in_borrowed_memory() ||
      sys::failed(sys::call(SYS_sigaltstack, 0, sys::ptr(&now))))
    return;
  const uint64_t before = t_start;
  const int tid = static_cast<int>(sys::call(SYS_gettid));
  t_start = now.ss_flags & SS_DISABLE ? 0 : reinterpret_cast<uint64_t>(now.ss_sp);
  if (before && before != t_start) forget(before, tid);
  if (t_start) note(t_start, tid);
}

int set_stack(const stack_t* now, stack_t* before) {
  const long r = sys::call(SYS_sigaltstack, sys::ptr(now), sys::ptr(before));
  if (sys::failed(r)) {
    errno = static_cast<int>(-r);
    return -1;
  }
  if (now) changed();
  return 0;
}

}  // namespace

uint64_t signal_stack_flag() { return in_common ? 0 : SA_ONSTACK; }

}  // namespace gpuckpt

extern "C" __attribute__((visibility("default"))) int sigaltstack(const stack_t* now,
                                                                  stack_t* before) noexcept {
  return gpuckpt::set_stack(now, before);
}

extern "C" long gpuckpt_sigaltstack(long, const stack_t* now, stack_t* before) {
  return gpuckpt::set_stack(now, before);
}
