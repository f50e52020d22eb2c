// cuda.h with every exported symbol under its own name (cuMemAlloc is the 32-bit one, cuMemAlloc_v2
// today's), which is how a driver must see it.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

// Exported. Everything else in the library is hidden.
#define SIMGPU_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI
