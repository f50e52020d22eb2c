#pragma once

#include "driver/module/module.h"

namespace simgpu {
// Blocks of `threads` threads that one multiprocessor holds at a time; 0 when not even one fits.
int blocks_per_multiprocessor(const Function&, const Device&, int threads, uint64_t dynamic_shared);
}  // namespace simgpu
