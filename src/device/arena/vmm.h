// The application's own virtual memory: reservations, physical handles, mappings, access rights,
// and the descriptors that stand for memory (shareable handles, shareable.h), also those of other
// processes. They are recorded as the program made them and made again at the same addresses, under
// the same numbers.
//
// Memory that no mapping shows in full is mapped for the time of a capture, and of a restore, at an
// address of our own that stays reserved for it.
//
// Owner: process-wide, part of every snapshot. Threads: the device worker with the gate closed, but
// for what says PARKED, and vmm_sweep(), which hooks call inside the gate. Errors: the report's
// failure.
#pragma once

#include "device/base/memory.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

// What of it could not be restored, in words; null: nothing.
const char* vmm_refusal();

// Mapped memory of `device`, to be captured and filled: mapping by mapping. `unlock` first gives
// the device access where the application has not (yet), and maps what is not mapped; `relock`
// takes it away again.
struct VmmExtent {
  uint64_t address, size;
};
void vmm_extents(int device, Vector<VmmExtent>* out);
uint64_t vmm_bytes();  // of memory, mapped or not, on all devices
bool vmm_unlock(DeviceReport* report);
void vmm_relock();

bool rebuild_vmm(DeviceReport* report);
// PARKED. Memory of the host's (cuMemCreate), which the program may have written until now.
void vmm_copy_host();

bool vmm_imported();  // memory of another process is here
// PARKED (device_plugin.h).
bool vmm_shares(void* context, bool (*one)(void* context, const DeviceShare&));
// Memory that only descriptors held is given back once they are closed. Cheap when there is none.
void vmm_sweep();

}  // namespace gpuckpt::device
