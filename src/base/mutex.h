// The one mutex inside the application's process: a futex word, nothing of libc.
//
// A waiter sleeps in the kernel. In a forked child every Mutex is free, even one that a thread of
// the parent held: the word names the fork it was taken in. A thread may be parked while it holds
// one, so code that runs while others are parked takes only those of which the owner says that no
// parked thread holds them. It does not work in memory that processes share: a waiter in another
// process is not woken.
//
// A Mutex may have a rank. With GPUCKPT_LOCK_ORDER (a build for tests: CMake's option of that name)
// a thread that takes one while it holds one of the same or a greater rank is stopped with a
// message; without it ranks cost nothing. Rank 0 is in no order.
//
// Owner: the object or file that declares it. Threads: all functions, except reset() and
// mutexes_after_fork(). Errors: none. Fixed size, no constructor at start.
#pragma once

#include <cstdint>

namespace gpuckpt {

namespace mutex_detail {
extern uint32_t fork_generation;  // counts in steps of 4, above the two bits of state

#ifdef GPUCKPT_LOCK_ORDER
void check_order(uint8_t rank);
void note_taken(const void* mutex, uint8_t rank);
void note_freed(const void* mutex);
// What is done about a lock out of order: a message and a trap, unless a test asks for less.
extern void (*out_of_order)(uint8_t held, uint8_t taken);
#endif
}  // namespace mutex_detail

class Mutex {
 public:
  constexpr Mutex() = default;
#ifdef GPUCKPT_LOCK_ORDER
  constexpr explicit Mutex(uint8_t rank) : rank_(rank) {}
#else
  constexpr explicit Mutex(uint8_t) {}
#endif
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
#ifdef GPUCKPT_LOCK_ORDER
    if (rank_) mutex_detail::check_order(rank_);
#endif
    uint32_t seen = mutex_detail::fork_generation;
    if (!__atomic_compare_exchange_n(&word_, &seen, seen | kHeld, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
      lock_slowly();
#ifdef GPUCKPT_LOCK_ORDER
    if (rank_) mutex_detail::note_taken(this, rank_);
#endif
  }
  void unlock() {
#ifdef GPUCKPT_LOCK_ORDER
    if (rank_) mutex_detail::note_freed(this);
#endif
    const uint32_t generation = mutex_detail::fork_generation;
    if (__atomic_exchange_n(&word_, generation, __ATOMIC_RELEASE) == (generation | kWaitedFor))
      wake_one();
  }
  // Whether a thread holds it, or held it when this process was forked: a look, stale at once
  // unless the other threads are parked.
  bool held() const { return __atomic_load_n(&word_, __ATOMIC_RELAXED) & kState; }
  // Makes it free, also when a thread held it. Only where no other thread can be inside.
  void reset() { __atomic_store_n(&word_, mutex_detail::fork_generation, __ATOMIC_RELAXED); }

 private:
  static constexpr uint32_t kHeld = 1, kWaitedFor = 2, kState = 3;
  void lock_slowly();
  void wake_one();
  uint32_t word_ = 0;  // the fork generation it was last taken or freed in, and its state
#ifdef GPUCKPT_LOCK_ORDER
  uint8_t rank_ = 0;
#endif
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
