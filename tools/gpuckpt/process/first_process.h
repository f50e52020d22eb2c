// How `run` and `restore` treat signals while they are process 1 of a container.
//
// Owner: main.cc's verbs. Threads: call it before any other is started. Errors: none.
#pragma once

namespace gpuckpt::cli {

// The kernel discards a signal that process 1 has no handler for, so that a pod that is deleted
// while it waits for its job would wait on until it is killed. From here on SIGHUP, SIGINT and
// SIGTERM end this process as they end any other, unless they are ignored. exec undoes it.
void end_on_signals_as_first_process();

}  // namespace gpuckpt::cli
