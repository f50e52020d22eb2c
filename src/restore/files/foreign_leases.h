// Leases (F_SETLEASE) that other processes have on the files of a snapshot: to open such a file
// waits until the lease is given back, for up to 45 seconds and without a word.
//
// Owner: none. Threads: the main thread, which waits. Errors: kExitTimeout, with the process.
#pragma once

#include "restore/image/tree.h"
#include "store/status.h"

namespace gpuckpt::restore {

// Asks for these leases as an open of the file does, and waits until they have been given back.
// Names on stderr the process that it waits for. The kernel takes a lease away after
// /proc/sys/fs/lease-break-time; the wait ends after a minute in any case.
store::Status end_foreign_leases(const Tree& tree);

}  // namespace gpuckpt::restore
