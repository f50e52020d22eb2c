#include "snapshot/calls/semaphore_undo.h"

#include <errno.h>
#include <signal.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "base/syscall.h"
#include "snapshot/park/park.h"

namespace gpuckpt {
namespace {

// --- what would be undone

constexpr size_t kMostUndos = 1024;
// The sum over all calls. Nothing is ever removed: of a set that is gone no snapshot asks.
struct Undo {
  std::atomic<uint64_t> semaphore;  // 1 + set << 16 | number
  std::atomic<int> change;          // what the kernel would add
  std::atomic<int64_t> since;       // the second in which it was 0 last
} undos[kMostUndos];
std::atomic<bool> too_many_undos;

uint64_t semaphore_of(int set, int number) {
  return 1 +
         (static_cast<uint64_t>(static_cast<uint32_t>(set)) << 16 | static_cast<uint16_t>(number));
}

// Null: there is none, or no room for one more.
Undo* find_undo(int set, int number, bool make) {
  const uint64_t semaphore = semaphore_of(set, number);
  for (size_t tries = 0, at = semaphore % kMostUndos; tries < kMostUndos;
       ++tries, at = (at + 1) % kMostUndos) {
    uint64_t found = undos[at].semaphore;
    if (!found && make) undos[at].semaphore.compare_exchange_strong(found, semaphore);
    if (found == semaphore || (!found && make)) return &undos[at];
    if (!found) return nullptr;
  }
  return nullptr;
}

// As sem_ctime counts them.
int64_t this_second() {
  constexpr int kRealtimeCoarse = 5;
  return static_cast<int64_t>(sys::now_us(kRealtimeCoarse) / 1000000);
}

void add_up(int set, const struct sembuf* operations, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!(operations[i].sem_flg & SEM_UNDO) || !operations[i].sem_op) continue;
    if (Undo* u = find_undo(set, operations[i].sem_num, true)) {
      if (!u->change) u->since = this_second();
      u->change -= operations[i].sem_op;
    } else {
      too_many_undos = true;
    }
  }
}

// --- calls that are under way

// semop (65) or semtimedop (220): a seccomp filter may allow only one of them. The kernel leaves
// %r8 as it is. The number is loaded right before the instruction, for eintr.h.
extern "C" {
__attribute__((visibility("hidden"))) extern const char gpuckpt_semop_returned[],
    gpuckpt_semtimedop_returned[], gpuckpt_semaphore_call_end[];
__attribute__((visibility("hidden"))) long gpuckpt_semaphore_call(void* call, long set,
                                                                  struct sembuf*, size_t count,
                                                                  const struct timespec*,
                                                                  bool timed);
}
asm(R"(
.text
.p2align 4
.globl gpuckpt_semaphore_call, gpuckpt_semop_returned, gpuckpt_semtimedop_returned, gpuckpt_semaphore_call_end
.hidden gpuckpt_semaphore_call, gpuckpt_semop_returned, gpuckpt_semtimedop_returned, gpuckpt_semaphore_call_end
.type gpuckpt_semaphore_call, @function
gpuckpt_semaphore_call:
    .cfi_startproc
    mov %r8, %r10
    mov %rdi, %r8
    mov %rsi, %rdi
    mov %rdx, %rsi
    mov %rcx, %rdx
    mov %rsp, 8(%r8)
    test %r9b, %r9b
    jnz 1f
    mov $65, %eax
    syscall
gpuckpt_semop_returned:
    mov %rax, 16(%r8)
    ret
1:  mov $220, %eax
    syscall
gpuckpt_semtimedop_returned:
    mov %rax, 16(%r8)
    ret
    .cfi_endproc
gpuckpt_semaphore_call_end:
.size gpuckpt_semaphore_call, .-gpuckpt_semaphore_call
)");

constexpr uint64_t kBeingFilled = 1;
constexpr long kNoResult = 1;  // semop returns 0 or an error
struct SemaphoreCall {
  std::atomic<uint64_t> thread;  // its thread pointer, or kBeingFilled; 0: the place is free
  uint64_t stack_pointer;        // in the call; 0: it has not begun
  long result;                   // kNoResult: it has not returned, or has just done so
  bool happened;                 // as look_at_undo_calls found it
  int set;
  const struct sembuf* operations;
  size_t count;
  uint64_t frame;

  bool is_listed() const { return thread > kBeingFilled; }
} calls[64];
static_assert(offsetof(SemaphoreCall, stack_pointer) == 8 && offsetof(SemaphoreCall, result) == 16);
std::atomic<int> unlisted_calls;
std::atomic<bool> any_call;

bool on_signal_stack() {
  stack_t stack{};
  sys::call(SYS_sigaltstack, 0, sys::ptr(&stack));
  return stack.ss_flags & SS_ONSTACK;
}

// Of a call that this thread has left by a jump out of a signal handler the place is taken over:
// its frame is not above ours. (On a signal stack that would tell nothing.) Null: none is free.
SemaphoreCall* take_place(uint64_t thread, uint64_t frame) {
  for (SemaphoreCall& c : calls)
    if (c.thread == thread && c.frame <= frame && !on_signal_stack()) {
      c.thread = kBeingFilled;
      return &c;
    }
  for (SemaphoreCall& c : calls) {
    uint64_t free = 0;
    if (c.thread.compare_exchange_strong(free, kBeingFilled)) return &c;
  }
  return nullptr;
}

bool has_undo(const struct sembuf* operations, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (operations[i].sem_flg & SEM_UNDO) return true;
  return false;
}

// Calls each(operations, count) with copies of the call's operations until it returns false. False:
// it did, or they cannot be read: the kernel has not looked at them yet, or their thread is gone.
template <typename Each>
bool read_operations(const SemaphoreCall& c, Each each) {
  struct sembuf copy[64];
  for (size_t done = 0, count; done < c.count; done += count) {
    count = std::min(c.count - done, std::size(copy));
    const iovec from{const_cast<struct sembuf*>(c.operations) + done, count * sizeof(copy[0])};
    const iovec to{copy, from.iov_len};
    if (sys::call(SYS_process_vm_readv, sys::getpid(), sys::ptr(&to), 1, sys::ptr(&from), 1) !=
            static_cast<long>(from.iov_len) ||
        !each(copy, count))
      return false;
  }
  return true;
}

// A snapshot between the two would count the call twice, or not at all, so that none can be.
void add_up_and_end(SemaphoreCall* c) {
  const uint64_t all = ~0ull;
  uint64_t mask = 0;
  sys::call(SYS_rt_sigprocmask, SIG_BLOCK, sys::ptr(&all), sys::ptr(&mask), sizeof(mask));
  add_up(c->set, c->operations, c->count);
  c->thread = 0;
  sys::call(SYS_rt_sigprocmask, SIG_SETMASK, sys::ptr(&mask), 0, sizeof(mask));
}

// Of the thread that is in the instructions above with this stack pointer; null: none is.
const greg_t* registers_in_call(uint64_t stack_pointer) {
  const auto begin = reinterpret_cast<uint64_t>(gpuckpt_semaphore_call);
  const auto end = reinterpret_cast<uint64_t>(gpuckpt_semaphore_call_end);
  for (size_t i = 0; i < parking.count(); ++i) {
    const ParkedThread& t = parking.thread(i);
    if (t.state != kParked) continue;
    const greg_t* r = t.context->uc_mcontext.gregs;
    const auto pc = static_cast<uint64_t>(r[REG_RIP]);
    if (begin <= pc && pc < end && static_cast<uint64_t>(r[REG_RSP]) == stack_pointer) return r;
  }
  return nullptr;
}

bool has_returned(const greg_t* r) {
  const auto pc = reinterpret_cast<const char*>(r[REG_RIP]);
  return pc == gpuckpt_semop_returned || pc == gpuckpt_semtimedop_returned;
}

}  // namespace

int operate_on_semaphores(int set, struct sembuf* operations, size_t count, bool timed,
                          const struct timespec* timeout) {
  const auto frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  const auto thread = reinterpret_cast<uint64_t>(__builtin_thread_pointer());
  any_call = true;
  SemaphoreCall unlisted{};
  SemaphoreCall* c = take_place(thread, frame);
  if (!c) ++unlisted_calls, c = &unlisted;
  c->stack_pointer = 0;
  c->result = kNoResult;
  c->set = set, c->operations = operations, c->count = count, c->frame = frame;
  c->thread = thread;
  const long result = gpuckpt_semaphore_call(c, set, operations, count, timeout, timed);
  if (result == 0 && has_undo(operations, count))
    add_up_and_end(c);
  else
    c->thread = 0;
  if (c == &unlisted) --unlisted_calls;
  if (!sys::failed(result)) return static_cast<int>(result);
  errno = static_cast<int>(-result);
  return -1;
}

void note_undo_control(int set, int semaphore, int command) {
  if (command == SETVAL)
    if (Undo* u = find_undo(set, semaphore, false)) u->change = 0;
  if (command == SETALL || command == IPC_RMID)
    for (Undo& u : undos)
      if (u.semaphore && (u.semaphore - 1) >> 16 == static_cast<uint32_t>(set)) u.change = 0;
}

void forget_undos() {
  if (!any_call) return;  // most programs make none, and what is not written stays shared
  any_call = false;
  for (Undo& u : undos) u.semaphore = 0, u.change = 0;
  for (SemaphoreCall& c : calls) c.thread = 0;
  too_many_undos = false;
  unlisted_calls = 0;
}

bool look_at_undo_calls() {
  bool all_known = unlisted_calls == 0;
  for (SemaphoreCall& c : calls) {
    c.happened = c.is_listed() && c.result == 0;
    if (!c.is_listed() || !c.stack_pointer || c.result != kNoResult) continue;
    const greg_t* r = registers_in_call(c.stack_pointer);
    c.happened = r && has_returned(r) && r[REG_RAX] == 0;
    bool undo = false;
    if (!r)
      read_operations(c,
                      [&](const struct sembuf* o, size_t n) { return !(undo |= has_undo(o, n)); });
    all_known &= !undo;
  }
  return all_known;
}

int undo_of(int set, int semaphore) {
  const Undo* u = find_undo(set, semaphore, false);
  int undo = u ? u->change.load() : 0;
  for (const SemaphoreCall& c : calls) {
    if (!c.happened || c.set != set) continue;
    read_operations(c, [&](const struct sembuf* operations, size_t count) {
      for (size_t i = 0; i < count; ++i)
        if (operations[i].sem_num == semaphore && operations[i].sem_flg & SEM_UNDO)
          undo -= operations[i].sem_op;
      return true;
    });
  }
  return undo;
}

bool set_since_undo(int set, int semaphore, int64_t set_at) {
  const Undo* u = find_undo(set, semaphore, false);
  return u && u->change && set_at > u->since;
}

bool more_undos_than_noted() { return too_many_undos; }

// Both operations at once leave the value as it is, and only one of them is undone. The one that
// adds comes first, as no value is below 0.
bool redo(int set, int semaphore, int undo) {
  const auto number = static_cast<unsigned short>(semaphore);
  const auto change = static_cast<short>(undo);
  struct sembuf both[2] = {{number, change, 0}, {number, static_cast<short>(-change), SEM_UNDO}};
  if (change < 0) {
    const struct sembuf first = both[1];
    both[1] = both[0];
    both[0] = first;
  }
  // The restore has set the values anew.
  if (Undo* u = find_undo(set, semaphore, false)) u->since = this_second();
  return !sys::failed(sys::call(SYS_semop, set, sys::ptr(both), 2));
}

}  // namespace gpuckpt
