// Processes of the program that still run when its first process was killed: children notice their
// parent's end only after a while, and until then hold what the restored ones need (ids, names of
// sockets, ports).
//
// Owner: none. Threads: the main thread, which waits. Errors: a message on stderr after ten
// seconds.
#pragma once

#include "restore/image/tree.h"

namespace gpuckpt::restore {

// Waits until the snapshot's processes that still run on this machine have ended, and says so on
// stderr; gives up, and says so as well, after ten seconds. Does not wait while the first of them
// runs, because then the user wants a second copy. Ends no process.
void wait_for_stale_processes(const Tree& tree);

}  // namespace gpuckpt::restore
