// Sends host pages to the writer: in the copied child, or, when the process cannot be copied, while
// it stands still.
#pragma once

#include "snapshot/capture.h"
#include "snapshot/ring.h"

namespace gpuckpt {

// Every page of the captured ranges that is not simply the file's or zero, then the eager copies.
// `own_copy`: we run in a copy of the process (protections may be changed freely).
bool pump_memory(const Capture&, Producer*, bool own_copy, char* text, size_t room);

}  // namespace gpuckpt
