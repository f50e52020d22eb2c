// Memory that was unmapped while kernels ran is kept until they have ended, because they hold plain
// pointers to it. MemoryPause stops all use of device memory for a moment.
#include "driver/stream/stream.h"

namespace simgpu {
namespace {
Mutex& mutex() {
  static Mutex m;
  return m;
}
int running = 0;
bool paused = false;
Cond& change() {
  static Cond c;
  return c;
}
std::vector<Ref<RefCounted>>* waiting = nullptr;
}  // namespace

void retire(Ref<RefCounted> b) {
  Lock lock(mutex());
  if (running == 0) {
    lock.unlock();
    return;  // freed here
  }
  if (!waiting) waiting = new std::vector<Ref<RefCounted>>;
  waiting->push_back(std::move(b));
}

MemoryUse::MemoryUse() {
  Lock lock(mutex());
  while (paused) change().wait(mutex());
  ++running;
}

MemoryUse::~MemoryUse() {
  std::vector<Ref<RefCounted>> gone;
  Lock lock(mutex());
  if (--running == 0 && waiting) gone.swap(*waiting);
  if (running == 0 && paused) change().broadcast();
  lock.unlock();
}

MemoryPause::MemoryPause() {
  Lock lock(mutex());
  while (paused) change().wait(mutex());  // another thread's pause
  paused = true;
  const uint64_t end = now_ns() + kPatienceNs;
  for (uint64_t now = now_ns(); running != 0 && now < end; now = now_ns())
    change().wait_for(mutex(), end - now);
  idle_ = running == 0;
}

MemoryPause::~MemoryPause() {
  Lock lock(mutex());
  paused = false;
  change().broadcast();
}

}  // namespace simgpu
