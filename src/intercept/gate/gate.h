// The gate: where every call of the application into the driver passes.
//
// A thread that calls the driver marks its own record (a plain store), looks whether the gate is
// open (a plain load) and goes on; the ordering between the two is paid for by the closing side
// with membarrier(2). Cost: about 2 ns. The closing side then waits until no record is marked.
// Threads that find the gate closed sleep on a futex unmarked, so that they can be parked there,
// and translate their arguments only after the wait: a restore may lie in between.
//
// Custom hooks (hook_<symbol>) run inside the gate. Threads of the driver and our own workers
// bypass it.
//
// Owner: a thread's record is its own until it ends. Threads: entering: any; closing and opening:
// one of ours at a time. Errors: a close that does not succeed in time names the holder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuckpt {

inline constexpr uint32_t kMaxContexts = 32;

// One per thread that ever called the driver. Lives in private memory, linked in one list; dead
// threads' records are found by their tid and used again. Nothing here needs libc.
struct alignas(64) ThreadRecord {
  std::atomic<uint32_t> inside;  // FunctionId + 1 of the outermost call; 0 = outside the driver
  uint32_t
      depth;      // nested calls (the driver calling itself, callbacks); starts at 1 when bypassing
  uint32_t seen;  // gate word at the last slow entry
  int32_t tid;    // 0: not known since the last restore
  ThreadRecord* next;

  // The stack of current contexts as the application sees it (old names), bottom first. The
  // generated wrappers keep it (column "ctx" of the spec). A restore re-establishes it in the
  // driver when this thread enters the driver for the first time in the new
  // generation.
  uint32_t context_count;
  uint32_t generation;  // of the last entry
  void* context[kMaxContexts];

  // The object that this thread is ending: unbound already, and known to this thread alone
  // (translate.h, EndingName). kind 0: none.
  uint8_t ending_kind;
  uint64_t ending_name, ending_now;
};

namespace gate_detail {
struct alignas(64) Word {
  std::atomic<uint32_t> word;       // generation << 1 | closed; also the futex waiters sleep on
  std::atomic<uint32_t> translate;  // non-zero: handles have old names (generation > 0)
};
[[gnu::visibility("hidden")]] extern Word g_gate;
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadRecord* t_record;
ThreadRecord* adopt_thread();  // first call of this thread: also loads the driver
void enter_slow(ThreadRecord*, uint32_t function);
}  // namespace gate_detail

// 0 in a process that was never restored, +1 at each restore.
inline uint32_t generation() {
  return gate_detail::g_gate.word.load(std::memory_order_relaxed) >> 1;
}

// Enters the driver for one call of the application. Constructed first in every wrapper.
class GateGuard {
 public:
  [[gnu::always_inline]] explicit GateGuard(uint32_t function) : record_(gate_detail::t_record) {
    if (__builtin_expect(record_ == nullptr, 0)) record_ = gate_detail::adopt_thread();
    if (__builtin_expect(record_->depth++ != 0, 0)) return;
    record_->inside.store(function + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (__builtin_expect(gate_detail::g_gate.word.load(std::memory_order_acquire) != record_->seen,
                         0)) {
      gate_detail::enter_slow(record_, function);
    }
  }
  [[gnu::always_inline]] ~GateGuard() {
    if (--record_->depth == 0) record_->inside.store(0, std::memory_order_release);
  }
  GateGuard(const GateGuard&) = delete;
  GateGuard& operator=(const GateGuard&) = delete;

  ThreadRecord* thread() const { return record_; }

 private:
  ThreadRecord* record_;
};

// Inside a hook: waits outside the gate for the life of the object (a long wait must not hold the
// gate). When `changed()` after reenter(), a restore happened in between and every real handle held
// across it is stale.
class GateOutside {
 public:
  GateOutside();
  ~GateOutside() { reenter(); }
  void reenter();
  bool changed() const { return changed_; }

 private:
  ThreadRecord* record_;
  uint32_t function_;
  uint32_t generation_;
  bool out_;
  bool changed_ = false;
};

// The thread and call that kept the gate from closing.
struct GateHolder {
  int tid;
  uint32_t function;  // FunctionId; function_name() names it
};

// Closes the gate and waits until no thread is inside the driver. Past `deadline_ns` (absolute,
// CLOCK_MONOTONIC) gives up: the gate is open again, `holder` (may be null) says which thread was
// inside. One closer at a time. Not PARKED.
bool gate_close(uint64_t deadline_ns, GateHolder* holder);

// PARKED: opens the gate and wakes the waiters. No libc.
void gate_open();
bool gate_closed();

// The calling thread (a worker of ours, a driver's thread) passes the gate without looking, for
// ever. Its arguments are translated like those of any caller of the exported functions; workers
// call real() and need no gate.
void gate_bypass_this_thread();

// The calling thread's record; null when it never called the driver.
inline ThreadRecord* this_thread_record() { return gate_detail::t_record; }
// Every record, for the snapshot (PARKED) or with the gate closed.
ThreadRecord* gate_first_thread();

// Set by src/device: re-establishes the context stack of the calling thread in the driver; called
// inside the gate at a thread's first entry of a new generation. Null: nothing happens.
extern void (*gate_establish)(ThreadRecord*);

// PARKED, restored process: the gate stays closed (or becomes so), ++generation, translation on,
// tids forgotten.
void gate_new_generation();

// In the child after fork(): only the calling thread is left, the gate is open. Registered at the
// first driver call.
void gate_after_fork();

// Names of FunctionIds (generated).
const char* function_name(uint32_t function);

}  // namespace gpuckpt
