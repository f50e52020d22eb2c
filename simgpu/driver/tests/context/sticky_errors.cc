// A kernel that faults spoils its context for every later call, until the context ends; others are
// not touched.
#include "kernels.h"

int main() {
  start();
  CUfunction wild = function(load(kKernels), "wild");
  CUcontext other;
  OK(cuCtxCreate(&other, nullptr, 0, 0));
  CUdeviceptr theirs, mine;
  OK(cuMemAlloc(&theirs, 64));
  OK(cuCtxPopCurrent(&other));
  OK(cuMemAlloc(&mine, 64));
  OK(launch1(wild, 1, 1, nullptr, static_cast<CUdeviceptr>(0)));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&mine, 64));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(nullptr));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD8(mine, 0, 64));
  OK(cuCtxPushCurrent(other));
  OK(cuMemsetD8(theirs, 1, 64));
  OK(cuCtxSynchronize());
  // A kernel reaches memory of another context of its device; freed memory is a fault.
  CUfunction again = function(load(kKernels), "wild");
  OK(launch1(again, 1, 1, nullptr, theirs));
  OK(cuCtxSynchronize());
  CUdeviceptr gone;
  OK(cuMemAlloc(&gone, 8 << 20));
  OK(cuMemFree(gone));
  OK(launch1(again, 1, 1, nullptr, gone));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuCtxPopCurrent(&other));
  OK(cuCtxDestroy(other));

  OK(cuDevicePrimaryCtxReset(0));
  start();
  CUmodule m = load(kKernels);
  OK(launch1(function(m, "stop"), 1, 1, nullptr));
  EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  OK(cuDevicePrimaryCtxReset(0));
  start();
  m = load(kKernels);
  static int pageable;
  OK(launch1(function(m, "wild"), 1, 1, nullptr, reinterpret_cast<CUdeviceptr>(&pageable)));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuDevicePrimaryCtxReset(0));
  start();
  CUdeviceptr d;
  OK(cuMemAlloc(&d, 64));
  OK(launch1(function(load(kKernels), "wild"), 1, 1, nullptr, d + 1));
  EXPECT(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
  return ok();
}
