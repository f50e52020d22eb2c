// Memory that was unmapped while kernels ran is kept until they have ended: they hold plain
// pointers to it.
#include "stream.h"

namespace simgpu {
namespace {
Mutex& mutex() {
  static Mutex m;
  return m;
}
int running = 0;
std::vector<Ref<RefCounted>>* waiting = nullptr;
}  // namespace

void retire(Ref<RefCounted> b) {
  Lock lock(mutex());
  if (running == 0) {
    lock.unlock();
    return;  // freed here
  }
  if (waiting == nullptr) waiting = new std::vector<Ref<RefCounted>>;
  waiting->push_back(std::move(b));
}

KernelRunning::KernelRunning() {
  Lock lock(mutex());
  ++running;
}

KernelRunning::~KernelRunning() {
  std::vector<Ref<RefCounted>> gone;
  Lock lock(mutex());
  if (--running == 0 && waiting != nullptr) gone.swap(*waiting);
  lock.unlock();
}

}  // namespace simgpu
