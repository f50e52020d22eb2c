// Memory pools and stream-ordered allocation.
#pragma once

#include "driver/base/heap.h"
#include "driver/context/device.h"

namespace simgpu {

class Pool : public Object {
 public:
  static constexpr Kind kKind = Kind::kPool;
  Pool(Device* d, bool is_default) : Object(kKind), device(d), standard(is_default), heap_(d) {}

  CUresult allocate(uint64_t bytes, Allocation*);
  void release_memory(const Allocation&);  // already out of the table

  Device* const device;
  const bool standard;
  bool exportable = false;  // made with the right kind of handles
  bool imported = false;    // represents a pool of another process, and allocates nothing
  Mutex mutex;
  uint64_t release_threshold = 0;
  int reuse_event = 1, reuse_opportunistic = 1, reuse_internal = 1;
  uint64_t used = 0, used_high = 0, reserved_high = 0;
  uint32_t access = 0;  // devices granted access besides its own
  uint64_t reserved() { return heap_.reserved(); }
  // Also for memory that was allocated before.
  void set_access(int ordinal, bool on);

 private:
  DeviceHeap heap_;
};

void make_default_pool(Device*);

}  // namespace simgpu
