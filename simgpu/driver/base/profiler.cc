// Profiler control: there is no profiler, so the calls do what they do on a machine where none is
// attached.
#include "driver/context/context.h"

using namespace simgpu;

SIMGPU_API cuProfilerStart(void) {
  ENTER(cuProfilerStart);
  CURRENT(c);
  return CUDA_SUCCESS;
}

SIMGPU_API cuProfilerStop(void) {
  ENTER(cuProfilerStop);
  CURRENT(c);
  return CUDA_SUCCESS;
}
