#include "snapshot/raw_thread.h"

namespace gpuckpt {

// The bytes of gpuckpt_sigreturn are the ones unwinders know a signal frame by; it has no unwind
// entry on purpose.
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
    xor %edi, %edi
    mov $60, %eax
    syscall
    hlt
1:  ret
.size gpuckpt_clone, .-gpuckpt_clone
    nop
    nop
.globl gpuckpt_sigreturn
.hidden gpuckpt_sigreturn
.type gpuckpt_sigreturn, @function
gpuckpt_sigreturn:
    mov $15, %rax
    syscall
.size gpuckpt_sigreturn, .-gpuckpt_sigreturn
)");
extern "C" long gpuckpt_clone(uint64_t flags, uint64_t stack, int* ptid, int* ctid, void* tls)
    __attribute__((visibility("hidden")));

long clone_raw(uint64_t flags, uint64_t stack_top, void (*run)(void*), void* argument,
               int* parent_tid, int* child_tid, void* tls) {
  uint64_t* sp = reinterpret_cast<uint64_t*>(stack_top & ~63ull) - 8;
  sp[0] = reinterpret_cast<uint64_t>(run);
  sp[1] = reinterpret_cast<uint64_t>(argument);
  return gpuckpt_clone(flags, reinterpret_cast<uint64_t>(sp), parent_tid, child_tid, tls);
}

}  // namespace gpuckpt
