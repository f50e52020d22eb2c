// Destroyed, foreign and made-up handles are errors, never crashes.
#include "check.h"

int main() {
  CUcontext primary = start();
  CUstream s;
  CUevent e;
  OK(cuStreamCreate(&s, 0));
  OK(cuEventCreate(&e, 0));
  auto stream_of = [](void* p) { return static_cast<CUstream>(p); };
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream_of(e)));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream_of(reinterpret_cast<void*>(0x1234))));
  int local;
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream_of(&local)));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(reinterpret_cast<CUevent>(s), s));
  OK(cuStreamDestroy(s));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(s));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, s));
  OK(cuEventDestroy(e));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(e));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(reinterpret_cast<CUmodule>(e)));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(reinterpret_cast<CUfunction>(&local), 1, 1, 1, 1,
                                                   1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(reinterpret_cast<CUcontext>(&local)));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(primary));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&primary, 7));

  // What a context owned ends with it.
  CUcontext c;
  OK(cuCtxCreate(&c, nullptr, 0, 0));
  CUdeviceptr d;
  OK(cuStreamCreate(&s, 0));
  OK(cuEventCreate(&e, 0));
  OK(cuMemAlloc(&d, 100));
  OK(cuCtxDestroy(c));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(s));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(e));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(d));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(c));
  CUcontext now;
  OK(cuCtxGetCurrent(&now));
  CHECK(now == primary);

  // A primary context that was reset gives its handle again.
  OK(cuEventCreate(&e, 0));
  OK(cuMemAlloc(&d, 100));
  OK(cuDevicePrimaryCtxReset(0));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&d, 100));
  unsigned flags;
  int active;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 0);
  CUcontext again;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  CHECK(again == primary);
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(e));
  OK(cuMemAlloc(&d, 100));
  return ok();
}
