// Signal actions, limits, timers and children that have ended, and between them, in the order that
// their records need, pending signals (pending.h) and threads (threads.h).
//
// Owner: the Capture. Threads: PARKED, the I/O thread. Errors: the Capture's failure.
#pragma once

#include "snapshot/process/capture.h"

namespace gpuckpt {

// PARKED. False: c->text says what cannot be kept.
bool put_process_state(Capture* c, Records* r);

}  // namespace gpuckpt
