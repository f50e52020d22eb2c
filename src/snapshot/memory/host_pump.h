// Sends host pages to the writer: in the copied child; from a copy made while parked; or, when
// neither is possible, while the process is stopped.
//
// Owner: the Capture. Threads: the I/O thread, or the copied child. Errors: false with a text.
#pragma once

#include "snapshot/io/ring.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

enum class PumpFrom { kClone, kStopped, kCopy };

// Every page of the captured ranges that is not simply the file's, then the eager copies. Pages of
// tracked ranges that were not written since the parent are only named (kRunSame).
bool pump_memory(const Capture&, Producer*, PumpFrom, char* text, size_t room);

}  // namespace gpuckpt
