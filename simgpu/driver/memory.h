#pragma once

#include "context.h"

namespace simgpu {

// Everything that frees an allocation ends here; `a` is still in the table.
void free_allocation(const Allocation& a, Context& owner);

}  // namespace simgpu
