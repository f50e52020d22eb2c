// What is told of a snapshot as JSON: to the writer before and after the capture, and to readers of
// the status file. Made by hand into a buffer: the program's heap is not ours.
//
// Threads: on the I/O thread, because files are opened. Text that does not fit is cut.
// Owner: the caller's buffers. Errors: a status file that cannot be written is logged.
#pragma once

#include <cstddef>

#include "snapshot/control/snapshot.h"

namespace gpuckpt {

// The first message to the writer: which process it is, and why.
void make_hello(const Snapshot&, char* to, size_t room);
// The last one: how long each part took, and how much it was.
void make_statistics(const Snapshot&, char* to, size_t room);
// GPUCKPT_STATUS_FILE: the outcome as one JSON object, replaced atomically. Does nothing without
// the setting; what goes wrong is logged.
void write_status_file(const Snapshot&);

}  // namespace gpuckpt
