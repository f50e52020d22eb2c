// What memory had besides its bytes and protection and mmap does not give: guard pages, locks in
// memory, NUMA policies, seals, names.
//
// Owner: the restored process. Threads: the first thread, before the others exist (a thread's NUMA
// policy: that thread); raw system calls only. Errors: false, or a warning where the program can do
// without.
#pragma once

#include <cstddef>

#include "gpuckpt/process_format.h"

namespace gpuckpt {

// Records in this order: kRecGuards, then kRecVma and kRecPolicy. What is not permitted here is
// logged, but for guards, which are boundaries of the program's own: false.
bool restore_guards(const process::Span* guards, size_t count);
// The name that PR_SET_VMA_ANON_NAME gave it, as /proc/PID/maps shows it.
void restore_title(const process::Vma&, const char* path);
// mseal: when nothing is to be changed any more. False: this kernel cannot do it.
bool restore_seal(const process::Vma&);
void restore_locked(const process::Vma&);
// For memory, or (tid) for the calling thread.
void restore_policy(const process::MemoryPolicy&);

}  // namespace gpuckpt
