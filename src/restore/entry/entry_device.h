// The device's contents, from the restore driver to the device side.
#pragma once

#include <cstdint>

#include "restore/protocol/plan.h"

namespace gpuckpt::entry {

// Has the device side rebuild everything, on a thread of its own. How long that took, in
// microseconds. When it fails the process ends; `program_runs`: nobody listens any more to whom the
// reason could be told.
uint64_t restore_device(const restore::Plan*, bool program_runs);

}  // namespace gpuckpt::entry
