// Signals, limits, timers and threads: what the kernel keeps of a process besides memory and
// descriptors.
//
// Owner: the Capture. Threads: PARKED, the I/O thread. Errors: the Capture's failure.
#pragma once

#include "snapshot/process/capture.h"

namespace gpuckpt {

// PARKED. False: c->text says what cannot be kept.
bool put_process_state(Capture* c, Records* r);

}  // namespace gpuckpt
