#include "driver/base/own_table.h"

#include <string.h>

#include "driver/context/context.h"
#include "driver/context/device.h"

// NVIDIA's driver hands its runtime tables of private functions, which take and return contexts
// past every interposer. This table (under an id that NVIDIA does not use, and imitating none of
// theirs) does the same, so that a test can hold on to a context as that runtime does.
namespace simgpu {
namespace {

CUcontext table_current() {
  Ref<Context> c;
  return current(&c, true) == CUDA_SUCCESS ? c->handle() : nullptr;
}
int table_is_context(CUcontext handle) { return static_cast<bool>(context_of(handle)); }

// The used bytes of the device. The call also answers while cuCheckpointProcessLock makes other
// calls wait.
uint64_t table_used(CUdevice ordinal) {
  Device* d = device_of(ordinal);
  return d ? d->used() : 0;
}

struct Table {
  size_t bytes;
  CUcontext (*current)();
  int (*is_context)(CUcontext);
  uint64_t (*used)(CUdevice);
  int (*talk)();
};
const Table kTable = {sizeof(Table), table_current, table_is_context, table_used, device_ioctl};

}  // namespace

const void* own_table(const CUuuid& id) {
  return memcmp(id.bytes, "simgpu own table", sizeof id.bytes) == 0 ? &kTable : nullptr;
}

}  // namespace simgpu
