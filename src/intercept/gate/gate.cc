#include "intercept/gate/gate.h"

#include <errno.h>
#include <linux/membarrier.h>

#include "base/heap.h"
#include "base/mutex.h"
#include "base/syscall.h"
#include "intercept/doors/doors.h"
#include "intercept/gate/step.h"
#include "intercept/realm/realm.h"
#include "intercept/spec/abi_table.h"

namespace gpuckpt {

void (*gate_establish)(ThreadRecord*) = nullptr;

namespace gate_detail {

constinit Word g_gate{};
constinit thread_local ThreadRecord* t_record = nullptr;

namespace {

constexpr size_t kBlockRecords = 64;
constexpr int kFree = -1;             // tid of a record without a thread
constexpr uint32_t kNeverSeen = ~0u;  // equals no gate word: every entry takes the slow way

std::atomic<ThreadRecord*> first{nullptr};
Mutex list_mutex;
uint32_t records = 0;
uint32_t sweep_at = kBlockRecords;  // look for dead threads when there are that many records
std::atomic<uint32_t> no_membarrier{0};
std::atomic<uint32_t> registered{0};

void register_membarrier() {
  long r = sys::call(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  no_membarrier.store(r != 0, std::memory_order_relaxed);
  registered.store(1, std::memory_order_relaxed);
}

bool alive(int tid) { return sys::call(SYS_tgkill, sys::getpid(), tid, 0) != -ESRCH; }

// With the list locked.
ThreadRecord* free_record(int tid) {
  bool sweep = records >= sweep_at;
  ThreadRecord* found = nullptr;
  for (ThreadRecord* r = first.load(std::memory_order_relaxed); r; r = r->next) {
    // A record of our own tid belongs to a thread that died before us.
    if (r->tid == tid || (sweep && r->tid > 0 && !alive(r->tid))) r->tid = kFree;
    if (r->tid == kFree && !found) found = r;
  }
  if (found) return found;
  Region block = region_map(kBlockRecords * sizeof(ThreadRecord));
  if (!block) return nullptr;
  auto* fresh = reinterpret_cast<ThreadRecord*>(block.data());
  for (size_t i = 0; i < kBlockRecords; i++) {
    fresh[i].tid = kFree;
    fresh[i].next = i + 1 < kBlockRecords ? &fresh[i + 1] : first.load(std::memory_order_relaxed);
  }
  records += kBlockRecords;
  sweep_at = records;
  first.store(fresh, std::memory_order_release);
  return fresh;
}

ThreadRecord* new_record() {
  int tid = sys::gettid();
  list_mutex.lock();
  if (!registered.load(std::memory_order_relaxed)) register_membarrier();
  ThreadRecord* r = free_record(tid);
  if (r) {
    r->inside.store(0, std::memory_order_relaxed);
    r->depth = 0;
    r->seen = kNeverSeen;
    r->context_count = 0;
    r->generation = generation();
    r->tid = tid;
  }
  list_mutex.unlock();
  return r;
}

}  // namespace

// Loading the driver changes mappings and libc's lists, which a snapshot may be looking at: a
// thread that would load it waits until the gate is open. One that comes just too late for that is
// found by realm_is_consistent().
static void wait_to_load() {
  for (uint32_t word;
       !realm_load_began() && (word = g_gate.word.load(std::memory_order_acquire)) & 1;)
    sys::futex_wait(&g_gate.word, word, 0);
}

ThreadRecord* adopt_thread() {
  wait_to_load();
  realm_load();
  // Loading may have brought this thread here before (a constructor of the driver).
  if (!t_record) {
    ThreadRecord* r;
    while (!(r = new_record()))
      sys::sleep_us(1000);  // no memory for a page: wait, there is no error to return
    t_record = r;
  }
  return t_record;
}

// `again`: the thread was outside during its call.
static void enter(ThreadRecord* r, uint32_t function, bool again) {
  const bool fence = no_membarrier.load(std::memory_order_relaxed);
  uint32_t word;
  for (;;) {
    if (fence) std::atomic_thread_fence(std::memory_order_seq_cst);
    word = g_gate.word.load(std::memory_order_acquire);
    if (!(word & 1) && (again || step_pass(function))) break;
    r->inside.store(0, std::memory_order_release);
    sys::futex_wait(&g_gate.word, word, 0);
    r->inside.store(function + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  r->seen = fence || stepping() ? kNeverSeen : word;
  if (r->generation != word >> 1) {
    r->generation = word >> 1;
    r->tid = sys::gettid();
    if (gate_establish) gate_establish(r);
  }
}

void enter_slow(ThreadRecord* r, uint32_t function) { enter(r, function, false); }

}  // namespace gate_detail

using namespace gate_detail;

GateOutside::GateOutside() : record_(t_record), function_(0), generation_(generation()) {
  uint32_t inside = record_ ? record_->inside.load(std::memory_order_relaxed) : 0;
  out_ = inside != 0 && record_->depth == 1;
  if (!out_) return;
  function_ = inside - 1;
  record_->inside.store(0, std::memory_order_release);
}

void GateOutside::reenter() {
  if (!out_) return;
  out_ = false;
  record_->inside.store(function_ + 1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (g_gate.word.load(std::memory_order_acquire) != record_->seen) enter(record_, function_, true);
  changed_ = generation() != generation_;
}

bool gate_close(uint64_t deadline_ns, GateHolder* holder) {
  g_gate.word.fetch_or(1, std::memory_order_seq_cst);
  if (!no_membarrier.load(std::memory_order_relaxed)) {
    sys::call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint64_t pause_us = 5;
  for (ThreadRecord* r = first.load(std::memory_order_acquire); r;) {
    uint32_t inside = r->inside.load(std::memory_order_acquire);
    if (!inside) {
      r = r->next;
      continue;
    }
    if (r->tid > 0 && !alive(r->tid)) {  // died inside: it will not leave
      r->inside.store(0, std::memory_order_relaxed);
      continue;
    }
    if (sys::now_us() * 1000 >= deadline_ns) {
      if (holder) *holder = {r->tid, inside - 1};
      gate_open();
      return false;
    }
    sys::sleep_us(pause_us);
    if (pause_us < 200) pause_us *= 2;
  }
  return true;
}

void gate_open() {
  g_gate.word.fetch_and(~1u, std::memory_order_seq_cst);
  sys::futex_wake(&g_gate.word, 0x7fffffff);
}

bool gate_closed() { return g_gate.word.load(std::memory_order_acquire) & 1; }

void gate_bypass_this_thread() {
  if (!t_record) t_record = new_record();
  if (t_record && t_record->depth == 0) t_record->depth = 1;
}

ThreadRecord* gate_first_thread() { return first.load(std::memory_order_acquire); }

void gate_new_generation() {
  uint32_t next = ((g_gate.word.load(std::memory_order_relaxed) >> 1) + 1) << 1 | 1;
  g_gate.word.store(next, std::memory_order_seq_cst);
  g_gate.translate.store(1, std::memory_order_seq_cst);
  step_end();
  list_mutex.reset();
  // The registration died with the old process. A program that never called the driver has none.
  if (registered.load(std::memory_order_relaxed)) register_membarrier();
  for (ThreadRecord* r = first.load(std::memory_order_relaxed); r; r = r->next) {
    if (r->tid > 0) r->tid = 0;
  }
}

void gate_after_fork() {
  list_mutex.reset();
  for (ThreadRecord* r = first.load(std::memory_order_relaxed); r; r = r->next) {
    if (r == t_record) {
      r->tid = sys::gettid();
    } else {
      r->inside.store(0, std::memory_order_relaxed);
      r->tid = kFree;
    }
  }
  if (registered.load(std::memory_order_relaxed)) register_membarrier();
  g_gate.word.fetch_and(~1u, std::memory_order_seq_cst);
}

const char* function_name(uint32_t function) {
  if (function < kDeclaredFunctions) return kAbi[function].symbol;
  function -= kDeclaredFunctions;
  return function < kNamedThunks + kPoolThunks ? thunk_name(function) : "?";
}

}  // namespace gpuckpt
