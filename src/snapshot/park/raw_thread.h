// Threads and processes by bare clone(2): unknown to glibc, which neither counts nor signals them.
// None is made with CLONE_SYSVSEM: it would give the program's own thread a list of SEM_UNDO, which
// one that is alone does not have, and kcmp(2) tells.
//
// Owner: the caller's stacks. Threads: any of ours. Errors: -errno.
#pragma once

#include <cstdint>

namespace gpuckpt {

// Starts `run(argument)` on the stack that ends at `stack_top`; the child exits with status 0 when
// `run` returns. `flags` are clone flags with the exit signal in the low byte. Returns the child's
// id or -errno.
long clone_raw(uint64_t flags, uint64_t stack_top, void (*run)(void*), void* argument,
               int* parent_tid, int* child_tid, void* tls);

// The return trampoline of our signal handlers.
extern "C" void gpuckpt_sigreturn() __asm__("__restore_rt");

}  // namespace gpuckpt
