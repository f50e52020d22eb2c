// malloc and free of kernels. The heap lies in a range of device memory that Memory::heap gives;
// all of its state is in that range, so that a copy of the range is a copy of the heap.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// 16-byte aligned device memory, or 0 when the heap has no room.
uint64_t device_malloc(Ctx&, uint64_t bytes);
// Returns false if malloc did not return `address`, it is free already, or the heap is damaged.
bool device_free(Ctx&, uint64_t address);

}  // namespace simgpu::ptx
