// The contents of device memory at a restore, as they come from the store.
//
// Owner: the caller. Threads: the restore's worker, before the program runs. Errors: the report's
// failure.
#pragma once

#include "device/base/memory.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

// What the driver knows as one piece of memory. Neighbours came as one piece of bytes.
struct UploadTarget {
  uint64_t begin, size;
};

// All memory is there, and open for writing; what lies outside of the targets (sorted here) is
// ignored. Counts report->device_bytes.
bool upload_contents(RestoreSource* source, Vector<UploadTarget>* targets, DeviceReport* report);

}  // namespace gpuckpt::device
