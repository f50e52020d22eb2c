// What kernels leave behind that no call shows: memory from malloc in device code, which lies in
// the driver's own heap, and printf's text that the driver has not printed yet. Both are told from
// the images of the modules that kernels were taken from.
//
// Owner: process-wide. Threads: the device worker; heap_note_unload(): hooks, with registry().lock.
// Errors: the report's failure, or false.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

// No kernel that may call malloc was ever taken from a module, or GPUCKPT_DEVICE_HEAP=empty says
// that nothing is left on the heap between kernels. Reads images that are new, outside of any lock.
bool check_device_heap(DeviceReport* report);

// Gate closed, all idle: the driver prints what kernels have printed, to the program's standard
// output. False: another thread has that locked.
bool print_pending();

// registry().lock is held; `object` is a module or library that is being unloaded.
void heap_note_unload(const Object* object);

}  // namespace gpuckpt::device
