// Managed memory of ours: what the program advised about it.
//
// Owner: the pool of pinned memory, which has the allocation. Threads: hooks, inside the gate;
// `use` runs under that pool's lock. Errors: false.
#pragma once

#include "device/arena/arena.h"

namespace gpuckpt::device {

// Calls `use` with the advice of the managed allocation that holds [address, address+bytes), under
// its lock. False: there is none.
bool with_managed(uint64_t address, uint64_t bytes, void* context, void (*use)(void*, Advice*));

}  // namespace gpuckpt::device
