// What the kernel would undo at the end of the process of its System V semaphore operations
// (SEM_UNDO). The kernel does not tell, so what comes through the library is added up. A thread is
// often parked just as such a call returns, before that: its registers tell whether the call has
// happened.
//
// Owner: process-wide; part of every snapshot. Threads: called by any. Errors: none; what cannot be
// told is a question of its own.
#pragma once

#include <sys/sem.h>

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// Makes the call, which is semtimedop if `timed`, and notes it. libc's result and errno.
int operate_on_semaphores(int set, struct sembuf* operations, size_t count, bool timed,
                          const struct timespec* timeout);
// semctl was called: to set a value ends what was to be undone, for all processes.
void note_undo_control(int set, int semaphore, int command);
// In a forked child: the kernel undoes nothing for it.
void forget_undos();

// PARKED, before undo_of: looks which calls have happened that are not added up. False: of one with
// SEM_UNDO it cannot be told, because its thread is in a signal handler.
bool look_at_undo_calls();
// PARKED. What the kernel would add to a semaphore at the end of the process.
int undo_of(int set, int semaphore);
// PARKED. Whether there is something to undo that a process may have ended by setting the value
// later, in the second `set_at` (sem_ctime).
bool set_since_undo(int set, int semaphore, int64_t set_at);
bool more_undos_than_noted();

// IN THE ENTRY. Makes the kernel undo so much again. False: it does not.
bool redo(int set, int semaphore, int undo);

}  // namespace gpuckpt
