// The devices at work side by side: each has a link of its own.
//
// Owner: the caller, who waits. Threads: one per device. Errors: those of the body.
#pragma once

#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

// Calls `step` for every device of the machine, on a thread of its own where the program has a
// context there; the calling thread takes part. Waits for all. What the reports count is added up
// (times: the longest); false, and the first report that says why, when a step failed.
using DeviceStep = bool (*)(void* context, int device, DeviceReport* report);
bool each_device(DeviceStep step, void* context, DeviceReport* report);

}  // namespace gpuckpt::device
