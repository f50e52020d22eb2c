// What belongs to the process as a whole: signals and limits, what its memory had beside bytes and
// protection, timers.
//
// Owner: the restored process. Threads: the first thread, raw system calls only. Errors: die(), or
// a warning where the program can do without.
#pragma once

#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

// Before the threads are made.
void restore_process(restore::Plan*);
void restore_memory(restore::Plan*);
// After them, because timers may name one; signals that waited for the process come here as well.
void restore_clocks(restore::Plan*);
// Last of all: what is mapped already keeps its own locks.
void restore_future_locks();

}  // namespace gpuckpt::entry
