#pragma once

#include "driver/abi/cuda_abi.h"

namespace simgpu {
// By CUDA_ERROR_x, x or number; CUDA_ERROR_UNKNOWN when there is no such error.
CUresult error_by_name(const char*);
}  // namespace simgpu
