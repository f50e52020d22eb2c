#pragma once

#include "driver/context/context.h"

namespace simgpu {

// Frees an allocation, whatever call asked for it; `a` is still in the table.
void free_allocation(const Allocation& a, Context& owner);

// Ends this process's mapping of an imported allocation (ipc.cc).
void free_imported(const Allocation& a);

// AddressSpace::classify, except that memory of graphs counts as the device's also while no launch
// has allocated it.
AddressSpace::Place place_of(uint64_t address, uint64_t length);

}  // namespace simgpu
