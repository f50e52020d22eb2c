// What descriptors get back only in the process itself: files of /proc, locks and leases, owners of
// signals, the controlling terminal. (All else is made by src/restore/descriptors.)
//
// Owner: the restored process. Threads: the first thread, raw system calls only. Errors: die(), or
// a warning where the program can do without.
#pragma once

#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

// First of all; closes what was the restore's own.
void finish_descriptors(restore::Plan*);
// When the helpers of the restore have closed the files.
void drop_notices(const restore::Plan*);  // that inotify has of the restore itself
void restore_leases(const restore::Plan*);

}  // namespace gpuckpt::entry
