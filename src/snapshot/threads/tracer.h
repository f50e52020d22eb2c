// What the kernel tells of a thread only to a process that traces it (ptrace). Threads of one
// process cannot trace each other, so a helper process that shares our memory does it while they
// are parked.
//
// Owner: none. Threads: PARKED; `work` runs alone, by raw system calls. Errors: false, where there
// is no helper or it may not trace (Yama, a filter, another tracer, other ids).
#pragma once

#include <cstdint>

namespace gpuckpt {

// Runs `work` in a process of its own that ends after it. False: that could not be made.
bool run_as_tracer(void (*work)(void*), void* argument);

// In `work`: stops the thread, asks `question` of it (its answer, or -errno), and lets it continue.
long trace_thread(int tid, long (*question)(int tid, void* argument), void* argument);

}  // namespace gpuckpt
