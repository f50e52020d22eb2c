// Managed memory of ours: what was advised about it.
#pragma once

#include "device/arena/arena.h"

namespace gpuckpt::device {

// Calls `use` with the advice of the managed allocation that holds [address, address+bytes), under
// its lock. False: there is none.
bool with_managed(uint64_t address, uint64_t bytes, void* context, void (*use)(void*, Advice*));

}  // namespace gpuckpt::device
