// A call that our signal interrupted returns EINTR where no SA_RESTART helps (poll, nanosleep,
// ...). The application did not ask for the signal, so we make the interrupted context execute its
// system call again.
//
// This is sound because our handlers block every signal: whatever else is pending is delivered
// after the context is back at its system call, and calls that swap the signal mask (ppoll,
// sigsuspend) put the old mask in place first.
//
// Owner: none. Threads: the interrupted one, in its handler. Errors: false: the call was none of
// those, and nothing was changed.
#pragma once

#include <ucontext.h>

#include <cstdint>

#include "base/syscall.h"
#include "snapshot/park/continued_wait.h"

namespace gpuckpt {

// From glibc 2.41 on every call that can be cancelled passes the call's number on the stack, and
// the system call instruction is in one of two places. A program with one thread loads the number
// right before the instruction, by `mov 16(%rsp),%rax`. A program with several threads makes the
// call in the function whose code this is. It keeps the number in a register that the kernel
// overwrites with the result, so the number is read where the function's caller got it: its seventh
// argument.
constexpr unsigned char kCancelArch[] = {
    0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0,  // mov %rdi,%r11; mov %rsi,%rax
    0x48, 0x89, 0xd7, 0x48, 0x89, 0xce,  // mov %rdx,%rdi; mov %rcx,%rsi
    0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xca,  // mov %r8,%rdx; mov %r9,%r10
    0x4c, 0x8b, 0x44, 0x24, 0x08,        // mov 8(%rsp),%r8
    0x4c, 0x8b, 0x4c, 0x24, 0x10,        // mov 16(%rsp),%r9
    0x4c, 0x89, 0x5c, 0x24, 0x08};       // mov %r11,8(%rsp)

// glibc's syscall(3), in which the kernel's result overwrites the number as well. The application
// reaches it through the library's syscall (libc_wrappers.cc), which writes the number below the
// stack pointer, and beside it the number XOR the first argument: a note that does not fit the
// first argument is of an earlier call.
constexpr unsigned char kSyscallFunction[] = {
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,  // mov %rdi,%rax; mov %rsi,%rdi
    0x48, 0x89, 0xd6, 0x48, 0x89, 0xca,  // mov %rdx,%rsi; mov %rcx,%rdx
    0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8,  // mov %r8,%r10; mov %r9,%r8
    0x4c, 0x8b, 0x4c, 0x24, 0x08};       // mov 8(%rsp),%r9

inline bool is_readable(uint64_t at) {  // eight bytes; of what a stack holds
  return sys::call(SYS_rt_sigprocmask, -1, static_cast<long>(at), 0, 8) ==
         -22 /* EINVAL, not EFAULT */;
}

// The function that the instruction before the return address calls; 0: it is none, or calls
// another way.
inline uint64_t called_before(uint64_t return_address) {
  if (!is_readable(return_address - 8)) return 0;
  const unsigned char* at = reinterpret_cast<const unsigned char*>(return_address) - 5;
  int32_t distance;
  __builtin_memcpy(&distance, at + 1, 4);
  return at[0] == 0xe8 ? return_address + static_cast<uint64_t>(static_cast<int64_t>(distance)) : 0;
}

// The seventh argument of the function that called kCancelArch. That function's frame ends at a
// return address behind a call of its beginning, which is near.
inline uint64_t number_in_frame(const uint64_t* sp) {
  constexpr uint64_t kFunctionBytes = 512, kLibraryBytes = 4 << 20;
  constexpr int kFirst = 3, kMost = 16;  // words of the stack; before are its arguments
  const uint64_t inside = sp[0];
  for (int i = kFirst; i < kMost; ++i) {
    if (sp[i] - inside + kLibraryBytes > 2 * kLibraryBytes) continue;
    const uint64_t function = called_before(sp[i]);
    if (function && function < inside && inside - function < kFunctionBytes) return sp[i + 1];
  }
  return ~0ull;
}

inline uint64_t number_noted(const uint64_t* sp, uint64_t first_argument) {
  return sp[-2] == (sp[-1] ^ first_argument) ? sp[-1] : ~0ull;
}

// The context executes system call `nr` again. A relative sleep that reports the rest continues
// with the rest.
inline void call_again(greg_t* r, long nr) {
  r[REG_RAX] = nr;
  r[REG_RIP] -= 2;
  if (nr == SYS_nanosleep && r[REG_RSI]) r[REG_RDI] = r[REG_RSI];
  if (nr == SYS_clock_nanosleep && !(r[REG_RSI] & 1) && r[REG_R10]) r[REG_RDX] = r[REG_R10];
}

// Without knowing the call: reads the number from the instruction before the `syscall` (mov
// $nr,%eax or xor %eax,%eax), or where glibc has put it. Also for a thread that the kernel had
// woken for a signal that another thread took: it continues by restart_syscall(2), which sigreturn
// makes fail.
inline bool repair_eintr_by_code(ucontext_t* uc) {
  greg_t* r = uc->uc_mcontext.gregs;
  const unsigned char* ip = reinterpret_cast<const unsigned char*>(r[REG_RIP]);
  const char* sp = reinterpret_cast<const char*>(r[REG_RSP]);
  const bool restarts = r[REG_RAX] == SYS_restart_syscall && ip[0] == 0x0f && ip[1] == 0x05;
  if (!restarts && r[REG_RAX] != -4) return false;
  if (restarts) ip += 2;
  if (ip[-2] != 0x0f || ip[-1] != 0x05) return false;
  uint64_t nr = 0;
  const long continued =
      continued_call(reinterpret_cast<uint64_t>(ip), reinterpret_cast<uint64_t>(sp));
  if (continued >= 0)
    nr = static_cast<uint64_t>(continued);
  else if (ip[-7] == 0xb8)
    __builtin_memcpy(&nr, ip - 6, 4);
  else if (ip[-7] == 0x48 && ip[-6] == 0x8b && ip[-5] == 0x44 && ip[-4] == 0x24)
    __builtin_memcpy(&nr, sp + static_cast<signed char>(ip[-3]), 8);
  else if (ip[-7] == 0x4c &&
           !__builtin_memcmp(ip - 2 - sizeof(kCancelArch), kCancelArch, sizeof(kCancelArch)))
    nr = number_in_frame(reinterpret_cast<const uint64_t*>(sp));
  else if (ip[-7] == 0x4c && !__builtin_memcmp(ip - 2 - sizeof(kSyscallFunction), kSyscallFunction,
                                               sizeof(kSyscallFunction)))
    nr = number_noted(reinterpret_cast<const uint64_t*>(sp), static_cast<uint64_t>(r[REG_RDI]));
  else if (!((ip[-4] == 0x31 || ip[-4] == 0x33) && ip[-3] == 0xc0))
    return false;
  if (nr >= 1024) return false;
  r[REG_RIP] = static_cast<greg_t>(reinterpret_cast<uint64_t>(ip));
  call_again(r, static_cast<long>(nr));
  return true;
}

// With what /proc/self/task/T/syscall said before the signal.
struct SyscallState {
  long nr = -1;  // -1: running, or not known
  uint64_t argument[6], sp, pc;
};
inline bool repair_eintr(ucontext_t* uc, const SyscallState& s) {
  greg_t* r = uc->uc_mcontext.gregs;
  if (r[REG_RAX] != -4 || s.nr < 0 || s.nr == SYS_restart_syscall) return false;
  if (static_cast<uint64_t>(r[REG_RIP]) != s.pc || static_cast<uint64_t>(r[REG_RSP]) != s.sp)
    return false;
  if (static_cast<uint64_t>(r[REG_RDI]) != s.argument[0] ||
      static_cast<uint64_t>(r[REG_RSI]) != s.argument[1])
    return false;
  call_again(r, s.nr);
  return true;
}

}  // namespace gpuckpt
