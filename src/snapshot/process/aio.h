// Contexts of kernel AIO: events that have completed and were not read, and the check that no
// request is in flight.
//
// Owner: the Capture. Threads: the I/O thread, PARKED. Errors: the Capture's failure.
#pragma once

#include <cstdint>

#include "snapshot/process/capture.h"

namespace gpuckpt {

// MapsLine::name of a context's ring.
inline constexpr char kAioRing[] = "/[aio] (deleted)";

// PARKED, on the I/O thread, whose descriptors are its own. False: refused, for now when requests
// are on their way.
bool capture_aio(Capture*, Records*, uint64_t start, uint64_t end);

}  // namespace gpuckpt
