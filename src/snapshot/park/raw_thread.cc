#include "snapshot/park/raw_thread.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"

namespace gpuckpt {

// The bytes of gpuckpt_sigreturn are the ones unwinders know a signal frame by; it has no unwind
// entry on purpose. gdb wants the name that glibc's has, too.
asm(R"(
.text
.type gpuckpt_clone, @function
gpuckpt_clone:
    mov %rcx, %r10
    mov $56, %eax
    syscall
    test %rax, %rax
    jnz 1f
    xor %ebp, %ebp
    pop %rax
    pop %rdi
    call *%rax
    call gpuckpt_thread_status
    mov %eax, %edi
    mov $60, %eax
    syscall
    hlt
1:  ret
.size gpuckpt_clone, .-gpuckpt_clone
    nop
    nop
.globl __restore_rt
.hidden __restore_rt
.type __restore_rt, @function
__restore_rt:
    mov $15, %rax
    syscall
.size __restore_rt, .-__restore_rt
)");
extern "C" long gpuckpt_clone(uint64_t flags, uint64_t stack, int* ptid, int* ctid, void* tls)
    __attribute__((visibility("hidden")));

// The last thread of a process to end gives it its status. When the main thread has left by the
// system call exit, as children of clone(2) do, that thread can be ours: it ends with the status of
// the main thread. /proc/self/stat is that of the main thread; its field 52 is the status.
extern "C" __attribute__((visibility("hidden"))) int gpuckpt_thread_status() {
  // Once the main thread has ended, the process's memory cannot be read by its number. Asked first,
  // because this thread lives on and has a descriptor while it reads /proc.
  char byte, from = 0;
  iovec to{&byte, 1}, there{&from, 1};
  if (sys::call(SYS_process_vm_readv, sys::getpid(), reinterpret_cast<long>(&to), 1,
                reinterpret_cast<long>(&there), 1, 0) != -ESRCH)
    return 0;
  ProcStat stat;
  if (!read_stat("/proc/self/stat", &stat) || !stat.ended()) return 0;
  return stat.number(ProcStat::kExitCode) >> 8 & 0xff;
}

long clone_raw(uint64_t flags, uint64_t stack_top, void (*run)(void*), void* argument,
               int* parent_tid, int* child_tid, void* tls) {
  uint64_t* sp = reinterpret_cast<uint64_t*>(stack_top & ~63ull) - 8;
  sp[0] = reinterpret_cast<uint64_t>(run);
  sp[1] = reinterpret_cast<uint64_t>(argument);
  return gpuckpt_clone(flags, reinterpret_cast<uint64_t>(sp), parent_tid, child_tid, tls);
}

}  // namespace gpuckpt
