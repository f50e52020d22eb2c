// Passes the device's contents from the supervisor to the device side.
//
// Owner: the restored process. Threads: the first thread, or the one that waits for the device
// while the program runs; the device side has a worker of its own. Errors: the process ends with
// the report's code.
#pragma once

#include <cstdint>

#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

// Has the device side rebuild everything, on a thread of its own. Returns how long that took, in
// microseconds. When it fails the process ends; `program_runs`: the supervisor does not listen
// for the reason any more.
uint64_t restore_device(const restore::Plan*, bool program_runs);

}  // namespace gpuckpt::entry
