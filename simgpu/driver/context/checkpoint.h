#pragma once

#include "driver/abi/cuda_abi.h"

namespace simgpu {

// Waits while the process is locked by cuCheckpointProcessLock.
void wait_while_locked();

}  // namespace simgpu
