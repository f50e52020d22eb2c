// A process of a job that is stopped (SIGSTOP, a shell's job control) takes part in a snapshot
// without running on: the leader queues a signal for each of its threads and lets it continue, and
// the threads come to the signal's handler before they come to anything else. There they are held,
// where they can be parked, until the process has stopped itself again and somebody else lets it
// go on. A restored process is held as well, and stops as the first thing it does.
//
// Its parent is told that it went on and that it stopped; a handler that it has for SIGCONT does
// not run for ours, because the stop that follows takes the signal back.
#pragma once

#include <signal.h>

namespace gpuckpt {

// The leader's: has the stopped process join at `door` (team.h).
void wake_stopped(int pid, unsigned door);

// The handler's: is the signal for that? Returns when the process goes on.
bool held_by(const siginfo_t* info);

// The coordinator's: are the threads held?
bool threads_are_held();
// Stops the process; returns when it goes on. True: for another snapshot, which wants it to join.
// False: it runs again.
bool stop_again();

}  // namespace gpuckpt
