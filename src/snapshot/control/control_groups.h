// The control groups of a process that are not those in which the job began, or was restored: the
// program has moved to them, or was moved. A restore begins in those of the user who restores (a
// scheduler's, a container's), and moves it to these again.
//
// Owner: process-wide. Threads: noted at the start by the main thread, or by the restore; recorded
// PARKED. Errors: what cannot be read counts as not moved.
#pragma once

#include "snapshot/process/capture.h"

namespace gpuckpt {

inline constexpr size_t kControlGroupsText = 4096;

// Before the program's own code runs.
void note_control_groups();
// In a restored process. `moved`: those that the restore has moved it to, as they were recorded.
void note_restored_control_groups(const char* moved);
// Those that a process began in, as /proc/PID/cgroup has them: what members compare with is the
// leader's.
void copy_first_control_groups(char* to, size_t room);
// A record of those that are others now, if there are any.
void put_control_groups(Records*);

}  // namespace gpuckpt
