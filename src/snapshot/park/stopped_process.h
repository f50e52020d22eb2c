// A process of a job that is stopped (SIGSTOP, a shell's job control) takes part in a snapshot
// without running on: the leader queues a signal for each of its threads and lets it continue, and
// the threads come to the signal's handler before they come to anything else. There they are held,
// where they can be parked, until the process has stopped itself again and another process
// continues it. A restored process is held as well, and stops as the first thing it does.
//
// Its parent, which is parked meanwhile, takes back what it is told of that (stopped_children.h). A
// handler that the process has for SIGCONT does not run for ours, because the stop that follows
// takes the signal back.
//
// Owner: process-wide. Threads: signal handlers, the coordinator and the leader's I/O thread.
// Errors: none are told.
#pragma once

#include <signal.h>

namespace gpuckpt {

// The leader's: has the stopped process join at `listener` (barrier.h).
void wake_stopped(int pid, unsigned listener);

// The handler's: is the signal for that? Returns when the process is continued.
bool held_by(const siginfo_t* info);

// The child's, when fork() is about to return there: a process that was stopped before it got so
// far could not join when it was woken, and does so now. PRECONDITION: all signals are blocked.
void join_after_birth();

// The coordinator's: are the threads held?
bool threads_are_held();
// Stops the process; returns when it is continued. True: for another snapshot, which wants it to
// join. False: it runs again.
bool stop_again();
// The same in the middle of a snapshot of which this process has done its part. A command that
// wants it for another one is remembered for the next stop_again(), which returns at once.
void stop_early();
// By which signal: that which stopped it before, if its parent has not waited for that; 0: any.
void stop_by(int signal);

}  // namespace gpuckpt
