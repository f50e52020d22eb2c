// What is left of the program when its first process was killed: children notice their parent's end
// only after a while, and until then hold what the restored ones need (ids, names of sockets,
// ports).
//
// Owner: none. Threads: the main thread, which waits. Errors: a message on stderr after ten
// seconds.
#pragma once

#include "restore/driver/tree.h"

namespace gpuckpt::restore {

// Waits until the processes of the snapshot that run on this machine still have ended, and says so
// on stderr; gives up, and says so as well, after ten seconds. Does not wait while the first of
// them runs: then a second copy was asked for. Ends no process.
void wait_for_stale_processes(const Tree& tree);

}  // namespace gpuckpt::restore
