// A CUDA driver in this process that the program loaded past our doors: by dlmopen, by a library
// that was opened with RTLD_DEEPBIND and then calls libc's dlopen, or from a copy under another
// name. Its calls pass no gate, so nothing of its state is in a snapshot.
//
// Owner: none. Threads: PARKED, the I/O thread. Errors: none; a driver that cannot be told from
// another file is not one.
#pragma once

#include "base/procfs/proc.h"

namespace gpuckpt {

// PARKED. For every line of /proc/self/maps, in order. True: the line is code of such a driver.
// Known are drivers by the name of their file (libcuda.so*) or by their SONAME.
bool foreign_driver(const MapsLine& line);

}  // namespace gpuckpt
