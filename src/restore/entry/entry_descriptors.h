// The properties of descriptors that only the process itself can restore: files of /proc, locks and
// leases, owners of signals, the controlling terminal. (src/restore/descriptors makes everything
// else.)
//
// Owner: the restored process. Threads: the first thread, raw system calls only. Errors: die(), or
// a warning where the program can do without.
#pragma once

#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

// Called first; closes the descriptors that belong to the restore.
void finish_descriptors(restore::Plan*);
// Called when the helpers of the restore have closed the files: drops events that inotify has seen
// of the restore itself.
void restore_owners(const restore::Plan*);  // to whom signals go; when the threads are there
void drop_notices(const restore::Plan*);    // that inotify has of the restore itself
void restore_leases(const restore::Plan*);

}  // namespace gpuckpt::entry
