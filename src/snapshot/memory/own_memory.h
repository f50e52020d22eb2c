// Reads memory of this process that may not be there, without a signal for the program.
//
// Owner: the caller's buffer. Threads: any. Errors: fewer bytes than were asked for.
#pragma once

#include <cstdint>

namespace gpuckpt {

// Copies up to `bytes` of this process's memory to `to` and returns how many it could: what lies
// beyond the end of a mapped file, or cannot be read from the disk, ends the copy and is no SIGBUS
// for the program. Takes no lock.
uint64_t copy_own_memory(void* to, const void* from, uint64_t bytes);

}  // namespace gpuckpt
