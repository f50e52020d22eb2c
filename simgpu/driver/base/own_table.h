// A private table of our own, for tests of what crosses such tables untranslated.
#pragma once

#include "driver/abi/cuda_abi.h"

namespace simgpu {
// The table of that id; null: we do not have it.
const void* own_table(const CUuuid&);
}  // namespace simgpu
