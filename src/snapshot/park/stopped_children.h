// A stopped process of a job is continued for a moment, to be captured, and stops again
// (stopped_process.h). Its parent must not notice: it is parked from before the one until after the
// other, and what the kernel reported to it meanwhile (SIGCHLD, what waitid reports) is taken back.
// Whether the program had waited for the first stop is kept, and by which signal that was.
//
// Owner: the parent's attempt. Threads: the parent's, with all signals blocked; PARKED where it
// says so. Errors: none are reported.
#pragma once

#include <cstddef>

#include "gpuckpt/process_format.h"
#include "snapshot/job/shared_state.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

// Are there any in the job? (Known once all processes have met to be parked.)
bool job_has_stopped();
// PARKED, before the leader continues any of them.
void note_stopped_children();
// The leader's, of a process that is stopped: has it not run since its parent noted it? (Yes when
// there is no parent in the job.)
bool stands_as_noted(const SharedJobState::Stopped&);
// PARKED: removes the signal that reports those that continued, before pending signals are
// recorded.
void hide_continued_children();
// PARKED: a record for each.
void put_stopped_children(Records*);
// PARKED, as the last thing: waits until they are stopped again.
void stop_children_again();

bool child_signal_waits();  // SIGCHLD is pending
// In a restored process, before its threads run: waits until these have stopped. `waited`: SIGCHLD
// was pending before.
void stop_restored_children_again(const process::StoppedChild* const* children, size_t count,
                                  bool waited);

}  // namespace gpuckpt
