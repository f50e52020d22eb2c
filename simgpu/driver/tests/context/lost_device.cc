// SIMGPU_LOST=2: the second launch loses the device, for good.
#include "kernels.h"

int main() {
  start();
  CUfunction count = function(load(kKernels), "count");
  OK(launch1(count, 1, 1, nullptr));
  OK(cuCtxSynchronize());
  OK(launch1(count, 1, 1, nullptr));
  EXPECT(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
  CUdeviceptr d;
  EXPECT(CUDA_ERROR_UNKNOWN, cuMemAlloc(&d, 64));
  OK(cuDevicePrimaryCtxReset(0));
  CUcontext c;
  OK(cuDevicePrimaryCtxRetain(&c, 0));
  EXPECT(CUDA_ERROR_UNKNOWN, cuMemAlloc(&d, 64));
  return ok();
}
