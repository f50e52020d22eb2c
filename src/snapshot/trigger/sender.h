// Finds out which process sent a signal that asks for snapshots. What the processes of a job send
// each other (and timers, message queues and descriptors send them) concerns the program alone; a
// signal from outside of the job asks for a snapshot.
//
// Owner: process-wide. Threads: signal handlers, and the thread that ends the program. Errors:
// none.
#pragma once

#include <signal.h>

namespace gpuckpt {

// Async-signal-safe. A sender that is gone and was never seen before counts as one from outside.
bool sent_within_job(const siginfo_t* info);

// A signal that this process has sent to another one may not have been looked at yet. Before the
// process ends, this gives the other one a moment to find out which process sent it.
void let_signals_arrive();

}  // namespace gpuckpt
