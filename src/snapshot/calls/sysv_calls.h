// The System V semaphores and message queues that the program uses. The kernel does not tell, so
// the calls of libc, which come through the library, are noted. What a program does by system calls
// of its own is not seen.
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

}  // namespace gpuckpt
