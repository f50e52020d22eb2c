#include "snapshot/park/interrupted_call.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>

#include "base/syscall.h"
#include "snapshot/calls/app_signals.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
namespace {

// A wait for a PI mutex is always restarted, and libc does not expect its end.
bool is_plain_wait(uint64_t futex_operation) {
  const uint64_t command =
      futex_operation & ~static_cast<uint64_t>(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
  return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

// Calls that the kernel restarts after a handler with SA_RESTART, and ends after others
// (signal(7)).
bool may_end(long nr, const greg_t* r) {
  switch (nr) {
    case SYS_read:
    case SYS_readv:
    case SYS_write:
    case SYS_writev:
    case SYS_ioctl:
    case SYS_open:
    case SYS_openat:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_flock:
    case SYS_fcntl:
    case SYS_mq_timedreceive:
    case SYS_mq_timedsend:
    case SYS_getrandom:
      return true;
    case SYS_futex:
      return is_plain_wait(static_cast<uint64_t>(r[REG_RSI]));
    default:
      return false;
  }
}

bool has_handler(int sig, uint64_t* flags) {
  sys::Sigaction action{};
  sys::sigaction(sig, nullptr, &action);
  *flags = action.flags;
  return action.handler > 1;
}

// The signals that wait for the calling thread or the process.
uint64_t waiting_signals() {
  uint64_t waiting = 0;
  sys::call(SYS_rt_sigpending, sys::ptr(&waiting), 8);
  return waiting & ~kSignalsOfLibc;
}

// Makes a signal that waits for the process one of this thread. False: another thread has it.
bool direct(int sig, int tid, siginfo_t* info) {
  const uint64_t set = 1ull << (sig - 1);
  sys::Timespec none{0, 0};
  if (sys::call(SYS_rt_sigtimedwait, sys::ptr(&set), sys::ptr(info), sys::ptr(&none), 8) != sig)
    return false;
  if (sys::failed(sys::call(SYS_rt_tgsigqueueinfo, library.pid, tid, sig, sys::ptr(info))))
    sys::call(SYS_tgkill, library.pid, tid, sig);
  return true;
}

// Will a handler of the program run for it, in this thread? `flags`: the handler's.
bool is_handled_here(int sig, bool alone, uint64_t* flags) {
  if (!has_handler(sig, flags)) return false;
  siginfo_t info;
  __builtin_memset(&info, 0, sizeof(info));
  const bool listened = is_listened(sig);
  // Another thread could take it first, and this call would have ended for nothing.
  if ((listened || !alone) && !direct(sig, sys::gettid(), &info)) return false;
  return !listened || is_for_program(sig, &info);
}

// Without a look at the thread before the signal: has the kernel set the context back to a system
// call's instruction, to execute it again? It leaves the return address of the first time in rcx.
bool is_set_back(const greg_t* r) {
  const unsigned char* ip = reinterpret_cast<const unsigned char*>(r[REG_RIP]);
  return r[REG_RCX] == r[REG_RIP] + 2 && ip[0] == 0x0f && ip[1] == 0x05;
}

}  // namespace

uint64_t blocked_in(const ucontext_t& uc) {
  uint64_t mask;
  __builtin_memcpy(&mask, &uc.uc_sigmask, sizeof(mask));
  return mask;
}

void direct_signals(int (*thread_for)(int sig)) {
  const uint64_t waiting = waiting_signals();
  for (int sig = 1; waiting && sig <= 64; ++sig) {
    uint64_t flags;
    if (!(waiting >> (sig - 1) & 1) || !has_handler(sig, &flags)) continue;
    siginfo_t info;
    if (const int tid = thread_for(sig)) direct(sig, tid, &info);
  }
}

CallEnd repair_call(ucontext_t* uc, const SyscallState& before) {
  if (repair_eintr(uc, before) || repair_eintr_by_code(uc)) return CallEnd::kAlways;
  const greg_t* r = uc->uc_mcontext.gregs;
  const bool restarted = before.nr >= 0 && r[REG_RAX] == before.nr &&
                         static_cast<uint64_t>(r[REG_RIP]) == before.pc - 2 &&
                         static_cast<uint64_t>(r[REG_RSP]) == before.sp;
  return restarted && may_end(before.nr, r) ? CallEnd::kWithoutRestart : CallEnd::kNever;
}

void continue_call(ucontext_t* uc, siginfo_t* info) {
  CallEnd end = CallEnd::kNever;
  if (repair_eintr_by_code(uc)) {
    end = CallEnd::kAlways;
    continue_wait(uc, info);
  } else {
    const greg_t* r = uc->uc_mcontext.gregs;
    if (is_set_back(r) && may_end(r[REG_RAX], r)) end = CallEnd::kWithoutRestart;
    take_parked_time(uc);
  }
  // A program that has confined itself may not survive the question for signals.
  if (!library.deaf) end_call_if_signalled(uc, end, false);
}

bool end_call_if_signalled(ucontext_t* uc, CallEnd end, bool alone) {
  if (end == CallEnd::kNever) return false;
  const uint64_t waiting = waiting_signals() & ~blocked_in(*uc);
  for (int sig = 1; sig <= 64; ++sig) {
    uint64_t flags;
    if (!(waiting >> (sig - 1) & 1) || !is_handled_here(sig, alone, &flags)) continue;
    // As the kernel does: the first handler decides.
    if (end == CallEnd::kWithoutRestart && flags & SA_RESTART) return false;
    uc->uc_mcontext.gregs[REG_RAX] = -EINTR;
    uc->uc_mcontext.gregs[REG_RIP] += 2;  // behind the instruction
    return true;
  }
  return false;
}

}  // namespace gpuckpt
