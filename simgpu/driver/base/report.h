// Counts calls that are not implemented, and names them.
#pragma once

#include "driver/abi/cuda_abi.h"
#include "driver/base/base.h"

namespace simgpu {

struct Stub {
  const char* name;
  std::atomic<uint64_t> calls;
};
// The body of every generated stub.
int unimplemented_stub(Stub&);
// At exit: "name calls" lines to SIMGPU_REPORT, when set.
void write_report();

}  // namespace simgpu
