#include "snapshot/park/continued_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>

#include "base/syscall.h"
#include "snapshot/park/eintr.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kMark = 0x7469617764656e75;
constexpr uint64_t kLeastStack = 8192;  // what an alternate signal stack must have left
constexpr int kArguments[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};

// While the thread waits its stack pointer is here. The order is known to the code below.
struct Record {
  uint64_t return_address;
  uint64_t sp;
  uint64_t argument[6];  // as the program passed them; the kernel preserves these registers
  uint64_t mark;
  uint64_t number;
  uint64_t deadline_us;  // CLOCK_MONOTONIC
  uint64_t left_us;      // when it was parked last
  sys::Timespec timeout;
};
static_assert(sizeof(Record) <= sizeof(siginfo_t));
static_assert(offsetof(Record, sp) == 8 && offsetof(Record, argument) == 16);

}  // namespace

// Ends as the program's own instruction does: rcx and r11 are lost, everything else is as it was.
// Unwinders find the program's frame by the record.
asm(R"(
.text
.type gpuckpt_continued_wait, @function
gpuckpt_continued_wait:
    .cfi_startproc
    .cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x06
    .cfi_escape 0x10, 0x10, 0x02, 0x77, 0x00
    syscall
    mov 16(%rsp), %rdi
    mov 24(%rsp), %rsi
    mov 32(%rsp), %rdx
    mov 40(%rsp), %r10
    mov 48(%rsp), %r8
    mov 56(%rsp), %r9
    mov (%rsp), %rcx
    .cfi_register %rip, %rcx
    mov 8(%rsp), %rsp
    .cfi_def_cfa %rsp, 0
    jmp *%rcx
    .cfi_endproc
.size gpuckpt_continued_wait, .-gpuckpt_continued_wait
)");
extern "C" void gpuckpt_continued_wait() __attribute__((visibility("hidden")));

namespace {

constexpr int kSyscallBytes = 2;

uint64_t stub() { return reinterpret_cast<uint64_t>(gpuckpt_continued_wait); }

Record* record_at(uint64_t sp) {
  Record* record = reinterpret_cast<Record*>(sp);
  return record->mark == kMark ? record : nullptr;
}

// Of a context that is about to continue its wait; null: it is elsewhere.
Record* record_of(const ucontext_t& uc) {
  const greg_t* r = uc.uc_mcontext.gregs;
  return static_cast<uint64_t>(r[REG_RIP]) == stub() ? record_at(static_cast<uint64_t>(r[REG_RSP]))
                                                     : nullptr;
}

// Which argument of the call is its relative time-out.
struct Timeout {
  int argument;  // -1: none
  bool is_milliseconds;
};

Timeout timeout_of(long nr, const greg_t* r) {
  constexpr Timeout kNone{-1, false};
  constexpr greg_t kAbsolute = 1;  // TIMER_ABSTIME
  switch (nr) {
    case SYS_poll:
      return {2, true};
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
      return {3, true};
    case SYS_epoll_pwait2:
    case SYS_semtimedop:
      return {3, false};
    case SYS_rt_sigtimedwait:
      return {2, false};
    case SYS_io_getevents:
    case SYS_io_pgetevents:
      return {4, false};
    case SYS_nanosleep:
      return r[REG_RSI] ? kNone : Timeout{0, false};
    case SYS_clock_nanosleep:
      return r[REG_RSI] & kAbsolute || r[REG_R10] ? kNone : Timeout{2, false};
    case SYS_futex: {
      constexpr greg_t kFlags = FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
      return (r[REG_RSI] & ~kFlags & 0xffffffff) == FUTEX_WAIT ? Timeout{3, false} : kNone;
    }
    default:
      return kNone;
  }
}

// In microseconds; 0: the call does not wait, or for ever.
uint64_t time_of(const Timeout& timeout, const greg_t* r) {
  constexpr uint64_t kMostSeconds = 1ull << 40;  // more would not be told from "for ever"
  const greg_t value = r[kArguments[timeout.argument]];
  if (timeout.is_milliseconds) {
    const int ms = static_cast<int>(value);
    return ms > 0 ? static_cast<uint64_t>(ms) * 1000 : 0;
  }
  const uint64_t at = static_cast<uint64_t>(value);
  if (!at || !is_readable(at) || !is_readable(at + 8)) return 0;
  const auto* t = reinterpret_cast<const sys::Timespec*>(at);
  if (t->sec < 0 || static_cast<uint64_t>(t->sec) > kMostSeconds || t->nsec < 0 ||
      t->nsec >= 1000000000)
    return 0;
  return static_cast<uint64_t>(t->sec) * 1000000 + (static_cast<uint64_t>(t->nsec) + 999) / 1000;
}

// Both lie in one signal frame as the kernel makes it: not in copies, which handlers of others may
// pass on to ours.
bool is_in_frame(const ucontext_t& uc, const siginfo_t* info) {
  constexpr uint64_t kKernelContextBytes = 304;
  return reinterpret_cast<uint64_t>(info) == reinterpret_cast<uint64_t>(&uc) + kKernelContextBytes;
}

// A record on the alternate signal stack takes room from the program's handlers.
bool has_room(const ucontext_t& uc, const siginfo_t* info) {
  const uint64_t start = reinterpret_cast<uint64_t>(uc.uc_stack.ss_sp);
  const uint64_t at = reinterpret_cast<uint64_t>(info) - start;
  if (uc.uc_stack.ss_flags & SS_DISABLE || at >= uc.uc_stack.ss_size) return true;
  return at >= kLeastStack;
}

void set_left(ucontext_t* uc, Record* record, uint64_t left_us) {
  greg_t* r = uc->uc_mcontext.gregs;
  const Timeout timeout = timeout_of(static_cast<long>(record->number), r);
  if (timeout.argument < 0) return;
  record->left_us = left_us;
  if (timeout.is_milliseconds) {
    r[kArguments[timeout.argument]] = static_cast<greg_t>((left_us + 999) / 1000);
    return;
  }
  record->timeout = {static_cast<long>(left_us / 1000000),
                     static_cast<long>(left_us % 1000000 * 1000)};
  r[kArguments[timeout.argument]] = static_cast<greg_t>(sys::ptr(&record->timeout));
}

void start_record(ucontext_t* uc, siginfo_t* info, uint64_t time_us) {
  greg_t* r = uc->uc_mcontext.gregs;
  Record* record = reinterpret_cast<Record*>(info);
  record->return_address = static_cast<uint64_t>(r[REG_RIP]) + kSyscallBytes;
  record->sp = static_cast<uint64_t>(r[REG_RSP]);
  for (int i = 0; i < 6; ++i) record->argument[i] = static_cast<uint64_t>(r[kArguments[i]]);
  record->mark = kMark;
  record->number = static_cast<uint64_t>(r[REG_RAX]);
  record->deadline_us = sys::now_us() + time_us;
  set_left(uc, record, time_us);
  r[REG_RIP] = static_cast<greg_t>(stub());
  r[REG_RSP] = static_cast<greg_t>(reinterpret_cast<uint64_t>(record));
}

}  // namespace

long continued_call(uint64_t pc, uint64_t sp) {
  const Record* record = pc == stub() + kSyscallBytes ? record_at(sp) : nullptr;
  return record ? static_cast<long>(record->number) : -1;
}

void continue_wait(ucontext_t* uc, siginfo_t* info) {
  if (record_of(*uc)) return;
  const greg_t* r = uc->uc_mcontext.gregs;
  const Timeout timeout = timeout_of(static_cast<long>(r[REG_RAX]), r);
  if (timeout.argument < 0 || !is_in_frame(*uc, info) || !has_room(*uc, info)) return;
  if (const uint64_t time_us = time_of(timeout, r)) start_record(uc, info, time_us);
}

void take_parked_time(ucontext_t* uc) {
  Record* record = record_of(*uc);
  if (!record) return;
  const uint64_t now = sys::now_us();
  set_left(uc, record, record->deadline_us > now ? record->deadline_us - now : 0);
}

void begin_rest(ucontext_t* uc) {
  Record* record = record_of(*uc);
  if (record) record->deadline_us = sys::now_us() + record->left_us;
}

}  // namespace gpuckpt
