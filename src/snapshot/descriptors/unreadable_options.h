// Options of sockets that the kernel accepts and never shows: keys, routing alerts, policies. What
// the program sets by libc's setsockopt or syscall is remembered, so that a snapshot refuses the
// socket by name, or says what a restore leaves out.
//
// Owner: process-wide; a child has a copy, a program that is executed begins with nothing. Threads:
// any of the application's notes; the coordinator asks while PARKED. Errors: the Capture's failure.
#pragma once

#include <cstdint>

namespace gpuckpt {

struct FdTable;

// Refuses or warns of what is remembered of one socket. Returns false if the snapshot is refused.
bool allows_unreadable_options(FdTable*, int fd, uint64_t inode);
// Called once for a process that has sockets.
void warn_of_forgotten_options();

}  // namespace gpuckpt
