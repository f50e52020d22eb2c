// The application's own virtual memory: reservations, physical handles, mappings, access rights.
// Recorded as made and made again at the same addresses.
#pragma once

#include "device/memory.h"
#include "snapshot/device_plugin.h"

namespace gpuckpt::device {

// What of it could not be restored, in words; null: nothing.
const char* vmm_refusal();

// Mapped memory of `device`, to be captured and filled: mapping by mapping. `unlock` first gives
// the device access where the application has not (yet); `relock` takes it away again.
struct VmmExtent {
  uint64_t address, size;
};
void vmm_extents(int device, Vector<VmmExtent>* out);
void vmm_unlock();
void vmm_relock();

bool rebuild_vmm(DeviceReport* report);

}  // namespace gpuckpt::device
