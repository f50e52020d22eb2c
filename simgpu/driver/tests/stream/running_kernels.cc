// A kernel spins while the host and other streams continue; the end of its context ends it, and so
// does the end of the process.
#include "kernels.h"

int main() {
  start();
  CUcontext c;
  OK(cuCtxCreate(&c, nullptr, 0, 0));
  CUmodule m = load(kKernels);
  CUfunction spin = function(m, "spin"), fill = function(m, "fill");
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  memset(flag, 0, 4096);
  CUstream a, b;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  OK(launch1(spin, 4, 64, a, reinterpret_cast<CUdeviceptr>(flag)));
  OK(launch1(fill, 1, 32, b, reinterpret_cast<CUdeviceptr>(flag + 64), 3u, 32u));
  OK(cuStreamSynchronize(b));
  CHECK(flag[64] == 3);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
  // Released by another stream.
  OK(cuStreamWriteValue32(b, reinterpret_cast<CUdeviceptr>(flag), 1, 0));
  OK(cuStreamSynchronize(a));
  *flag = 0;
  OK(launch1(spin, 4, 64, a, reinterpret_cast<CUdeviceptr>(flag)));
  rest(0.02);
  double t = seconds();
  OK(cuCtxDestroy(c));
  CHECK(seconds() - t < 5);

  m = load(kKernels);
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  *flag = 0;
  OK(launch1(function(m, "spin"), 1, 32, nullptr, reinterpret_cast<CUdeviceptr>(flag)));
  rest(0.02);
  return ok();  // in flight
}
