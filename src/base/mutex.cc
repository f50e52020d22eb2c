#include "base/mutex.h"

#include "base/syscall.h"
#include "base/text/text.h"

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

#ifdef GPUCKPT_LOCK_ORDER
namespace {

// What is held, by all threads: few at a time. Not in thread-local memory, because raw threads
// share that of the thread that started them.
struct Held {
  const void* mutex;  // null: free
  int tid;
  uint8_t rank;
};
Held held[256];

void stop(uint8_t outer, uint8_t inner) {
  char line[128];
  const size_t n =
      format(line, sizeof(line),
             "gpuckpt: lock order: a lock of rank %d was taken while one of rank %d is "
             "held\n",
             int{inner}, int{outer});
  sys::write(2, line, n);
  __builtin_trap();
}

}  // namespace

void (*mutex_detail::out_of_order)(uint8_t, uint8_t) = stop;

void mutex_detail::check_order(uint8_t rank) {
  const int self = sys::gettid();
  for (const Held& h : held)
    if (__atomic_load_n(&h.mutex, __ATOMIC_ACQUIRE) && h.tid == self && h.rank >= rank)
      out_of_order(h.rank, rank);
}

void mutex_detail::note_taken(const void* mutex, uint8_t rank) {
  for (Held& h : held) {
    const void* nothing = nullptr;
    // Until tid is there it is another thread's or 0: only this thread looks for its own.
    if (!__atomic_compare_exchange_n(&h.mutex, &nothing, mutex, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
      continue;
    h.rank = rank;
    __atomic_store_n(&h.tid, sys::gettid(), __ATOMIC_RELEASE);
    return;
  }
}

void mutex_detail::note_freed(const void* mutex) {
  for (Held& h : held) {
    if (__atomic_load_n(&h.mutex, __ATOMIC_ACQUIRE) != mutex) continue;
    h.tid = 0;
    __atomic_store_n(&h.mutex, nullptr, __ATOMIC_RELEASE);
    return;
  }
}
#endif

void mutexes_after_fork() {
  mutex_detail::fork_generation += 4;
#ifdef GPUCKPT_LOCK_ORDER
  for (Held& h : held) h = {};
#endif
}

}  // namespace gpuckpt
