#include "snapshot/calls/fork_pause.h"

#include <atomic>

#include "base/syscall.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kPatienceUs = 1000000;
constexpr uint64_t kRestUs = 200;

// Futex words of the process: pauses that are active, forks that are under way on any thread.
std::atomic<uint32_t> paused, under_way;

}  // namespace

ForkPause::ForkPause() {
  const uint64_t patience = sys::now_us() + kPatienceUs;
  for (;;) {
    paused = 1;
    if (!under_way) return;
    paused = 0;
    if (sys::now_us() > patience) return;
    sys::sleep_us(kRestUs);
  }
}

ForkPause::~ForkPause() { paused = 0; }

void fork_begins() {
  for (;;) {
    ++under_way;
    if (!paused) return;
    --under_way;
    sys::call(SYS_sched_yield);
  }
}

void fork_ends() { --under_way; }

void fork_pause_after_fork() { paused = under_way = 0; }

}  // namespace gpuckpt
