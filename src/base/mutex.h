// The one mutex inside the application's process: a futex word, nothing of libc.
//
// A waiter sleeps in the kernel. In a forked child every Mutex is free, whoever held it in the
// parent: the word names the fork it was taken in. A thread may be parked while it holds one, so
// code that runs while others are parked takes only those whose owner says that no parked thread
// holds them. In memory that processes share it has no place: a waiter in another process is not
// woken.
//
// Threads: all functions, except reset() and mutexes_after_fork(). Errors: none. Fixed size, no
// constructor at start.
#pragma once

#include <cstdint>

namespace gpuckpt {

namespace mutex_detail {
extern uint32_t fork_generation;  // counts in steps of 4, above the two bits of state
}

class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    uint32_t seen = mutex_detail::fork_generation;
    if (!__atomic_compare_exchange_n(&word_, &seen, seen | kHeld, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
      lock_slowly();
  }
  void unlock() {
    const uint32_t generation = mutex_detail::fork_generation;
    if (__atomic_exchange_n(&word_, generation, __ATOMIC_RELEASE) == (generation | kWaitedFor))
      wake_one();
  }
  // Whether a thread holds it, or held it when this process was forked: a look, stale at once
  // unless the other threads are parked.
  bool held() const { return __atomic_load_n(&word_, __ATOMIC_RELAXED) & kState; }
  // Makes it free, whoever held it. Only where no other thread can be inside.
  void reset() { __atomic_store_n(&word_, mutex_detail::fork_generation, __ATOMIC_RELAXED); }

 private:
  static constexpr uint32_t kHeld = 1, kWaitedFor = 2, kState = 3;
  void lock_slowly();
  void wake_one();
  uint32_t word_ = 0;  // the fork generation it was last taken or freed in, and its state
};

// Holds a Mutex for a scope.
class [[nodiscard]] MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// In a forked child, before it takes any Mutex: all are free. May be called more than once.
void mutexes_after_fork();

}  // namespace gpuckpt
