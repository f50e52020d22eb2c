// A lock in the memory that the processes of a job share. (Mutex does not wake waiters of other
// processes.)
//
// Owner: the shared state. Threads: of all processes. Errors: false: the process that has
// it, and may have been killed, did not give it back in time.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/syscall.h"

namespace gpuckpt {

inline bool take_shared(std::atomic<uint32_t>* lock, uint64_t until_us) {
  while (lock->exchange(1)) {
    if (sys::now_us() > until_us) return false;
    sys::futex_wait(lock, 1, 1000, true);
  }
  return true;
}
inline void give_shared(std::atomic<uint32_t>* lock) {
  *lock = 0;
  sys::futex_wake(lock, 1, true);
}

}  // namespace gpuckpt
