// The System V semaphores and message queues that the program uses, and what the kernel would undo
// of them at its end (SEM_UNDO). The kernel tells neither of a process, so the calls of libc, which
// come through the library, are noted. What a program does by system calls of its own is not seen.
//
// Owner: process-wide; the numbers are inherited over fork and part of every snapshot. Threads:
// noted by any. Errors: none.
#pragma once

#include <cstdint>

namespace gpuckpt {

enum class SysvKind : uint32_t { kSemaphores = 1, kQueue = 2 };

// PARKED. Calls each(context, kind, number) until it returns false, which it returns then, too.
bool each_sysv_number(void* context, bool (*each)(void* context, SysvKind kind, int number));
// Whether more were used than can be noted.
bool more_sysv_than_noted();

// PARKED. What the kernel would add to a semaphore at the end of the process.
int undo_of(int set, int semaphore);
bool more_undos_than_noted();
// Whether a thread is in a call that the kernel is to undo: it may have happened, and is not noted.
bool in_undo_call();
// In a forked child: the kernel undoes nothing for it.
void forget_undos();
// IN THE ENTRY. Makes the kernel undo so much again. False: it does not.
bool redo(int set, int semaphore, int undo);

}  // namespace gpuckpt
