// SIMGPU_FAIL=cuMemAlloc:2,cuStreamCreate:1:NOT_READY and a small SIMGPU_MEMORY make calls fail as
// they say.
#include "check.h"

int main() {
  start();
  CUdeviceptr d, e, f;
  OK(cuMemAlloc(&d, 100));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&e, 100));
  OK(cuMemAlloc(&e, 100));
  CUstream s;
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamCreate(&s, 0));
  OK(cuStreamCreate(&s, 0));
  size_t left, total;
  OK(cuMemGetInfo(&left, &total));
  CHECK(total == 64 << 20 && left < total);
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&f, 64 << 20));
  OK(cuMemAlloc(&f, 32 << 20));
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&e, 32 << 20));
  OK(cuMemFree(f));
  OK(cuMemAlloc(&f, 32 << 20));
  return ok();
}
