// A child of vfork, or of clone with CLONE_VM alone, is another process that runs in its parent's
// memory until it executes a program or ends. What it writes to the library's records, it writes
// to its parent's; what it changes in the kernel is its own.
//
// Owner: none. Threads: any; async-signal-safe. Errors: none; where the kernel tells nothing of
// another process (kcmp and process_vm_readv forbidden), yes.
#pragma once

namespace gpuckpt {

bool shares_memory_with(int pid);
bool in_borrowed_memory();  // this process is such a child of the one that the library knows

}  // namespace gpuckpt
