#include "base/mutex.h"

#include "base/syscall.h"

namespace gpuckpt {

uint32_t mutex_detail::fork_generation = 0;

void Mutex::lock_slowly() {
  const uint32_t free = mutex_detail::fork_generation, held = free | kHeld,
                 waited_for = free | kWaitedFor;
  uint32_t seen = __atomic_load_n(&word_, __ATOMIC_RELAXED);
  while ((seen & ~kState) != free || seen == free)  // free, or taken before the fork
    if (__atomic_compare_exchange_n(&word_, &seen, held, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return;
  while (__atomic_exchange_n(&word_, waited_for, __ATOMIC_ACQUIRE) != free)
    sys::futex_wait(&word_, waited_for, 0);
}

void Mutex::wake_one() { sys::futex_wake(&word_, 1); }

void mutexes_after_fork() { mutex_detail::fork_generation += 4; }

}  // namespace gpuckpt
