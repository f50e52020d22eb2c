// What was called and is not there: counted and named.
#pragma once

#include "base.h"
#include "cuda_abi.h"

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
