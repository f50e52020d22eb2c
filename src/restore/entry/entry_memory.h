// Properties of memory that mmap and mprotect do not set: guard pages, memory locks, NUMA policies,
// seals, names.
//
// Owner: the restored process. Threads: the first thread, before the others exist (a thread's NUMA
// policy: that thread); raw system calls only. Errors: false, or a warning where the program can do
// without.
#pragma once

#include <cstddef>

#include "gpuckpt/process_format.h"

namespace gpuckpt {

// Takes records in this order: kRecGuards, then kRecVma and kRecPolicy. False: a guard page cannot
// be set, which is a boundary that the program relies on; other failures are logged.
bool restore_guards(const process::Span* guards, size_t count);
// The name that PR_SET_VMA_ANON_NAME gave it, as /proc/PID/maps shows it.
void restore_title(const process::Vma&, const char* path);
// Seals with mseal, when nothing is to be changed any more. False: this kernel does not support it.
bool restore_seal(const process::Vma&);
void restore_locked(const process::Vma&);
// Sets the policy of memory, or (tid) of the calling thread.
void restore_policy(const process::MemoryPolicy&);

}  // namespace gpuckpt
