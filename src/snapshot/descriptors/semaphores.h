// System V semaphores that the kernel gives back when the program is killed (SEM_UNDO).
//
// Owner: process-wide, and part of every snapshot. Threads: noted by any, told by the coordinator.
// Errors: none.
#pragma once

namespace gpuckpt {

// PARKED. Tells of each that the program has changed so and not changed back.
void warn_of_semaphores();
// In a forked child, and in a restored process: the kernel knows of none.
void forget_semaphores();

}  // namespace gpuckpt
