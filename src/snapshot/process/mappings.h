// The mappings of the process, in the order of /proc/PID/maps: what each is of, and where its pages
// come from.
//
// Owner: the Capture. Threads: PARKED, on the I/O thread. Errors: the Capture's failure.
#pragma once

#include "snapshot/process/capture.h"

namespace gpuckpt {

// Returns false if the snapshot is refused.
bool put_mappings(Capture*, Records*);

}  // namespace gpuckpt
