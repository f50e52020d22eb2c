// A call that our signal interrupted returns EINTR where no SA_RESTART helps (poll, nanosleep,
// ...). The application did not ask for the signal, so we make the interrupted context execute its
// system call again.
//
// This is sound because our handlers block every signal: whatever else is pending is delivered
// after the context is back at its system call, and calls that swap the signal mask (ppoll,
// sigsuspend) put the old mask in place first.
#pragma once

#include <ucontext.h>

#include <cstdint>

namespace gpuckpt {

// Without knowing the call: reads the number from the instruction before the `syscall` (mov
// $nr,%eax or xor %eax,%eax).
inline bool repair_eintr_by_code(ucontext_t* uc) {
  greg_t* r = uc->uc_mcontext.gregs;
  if (r[REG_RAX] != -4) return false;
  const unsigned char* ip = reinterpret_cast<const unsigned char*>(r[REG_RIP]);
  if (ip[-2] != 0x0f || ip[-1] != 0x05) return false;
  uint32_t nr;
  if (ip[-7] == 0xb8)
    __builtin_memcpy(&nr, ip - 6, 4);
  else if ((ip[-4] == 0x31 || ip[-4] == 0x33) && ip[-3] == 0xc0)
    nr = 0;
  else
    return false;
  if (nr >= 1024) return false;
  r[REG_RAX] = nr;
  r[REG_RIP] -= 2;
  return true;
}

// With what /proc/self/task/T/syscall said before the signal.
struct SyscallState {
  long nr = -1;  // -1: running, or not known
  uint64_t argument[6], sp, pc;
};
inline bool repair_eintr(ucontext_t* uc, const SyscallState& s) {
  greg_t* r = uc->uc_mcontext.gregs;
  if (r[REG_RAX] != -4 || s.nr < 0) return false;
  if (static_cast<uint64_t>(r[REG_RIP]) != s.pc || static_cast<uint64_t>(r[REG_RSP]) != s.sp)
    return false;
  if (static_cast<uint64_t>(r[REG_RDI]) != s.argument[0] ||
      static_cast<uint64_t>(r[REG_RSI]) != s.argument[1])
    return false;
  r[REG_RAX] = s.nr;
  r[REG_RIP] -= 2;
  return true;
}

}  // namespace gpuckpt
