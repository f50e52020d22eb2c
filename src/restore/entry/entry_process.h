// State of the process as a whole: signals and limits, properties of its memory descriptor, timers.
//
// Owner: the restored process. Threads: the first thread, raw system calls only. Errors: die(), or
// a warning where the program can do without.
#pragma once

#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

// Called before the threads are made.
void restore_process(restore::Plan*);
void restore_memory(restore::Plan*);
// Called after the threads are made, because timers may name one; also queues the signals that were
// pending for the process.
void restore_clocks(restore::Plan*);
// Called when all threads are there, ours too: the kernel chooses by their number.
void restore_futex_hash(restore::Plan*);
// Called last, because mappings that exist already keep their own locks.
void restore_future_locks();

}  // namespace gpuckpt::entry
