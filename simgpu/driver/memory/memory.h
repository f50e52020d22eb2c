#pragma once

#include "driver/context/context.h"

namespace simgpu {

// Everything that frees an allocation ends here; `a` is still in the table.
void free_allocation(const Allocation& a, Context& owner);

// Its mapping here ends (ipc.cc).
void free_imported(const Allocation& a);

// AddressSpace::classify, except that memory of graphs counts as the device's also while no launch
// has allocated it.
AddressSpace::Place place_of(uint64_t address, uint64_t length);

}  // namespace simgpu
