// SIMGPU_SLOW_COPY=0.1: ten megabytes take a tenth of a second over the bus, and the caller of
// Async does not wait.
#include "check.h"

int main() {
  start();
  const size_t n = 10 << 20;
  void* pinned;
  OK(cuMemHostAlloc(&pinned, n, 0));
  CUdeviceptr d, e;
  OK(cuMemAlloc(&d, n));
  OK(cuMemAlloc(&e, n));
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  double t = seconds();
  OK(cuMemcpyHtoDAsync(d, pinned, n, s));
  CHECK(seconds() - t < 0.09);
  OK(cuStreamSynchronize(s));
  CHECK(seconds() - t > 0.095);
  t = seconds();
  OK(cuMemcpyDtoDAsync(e, d, n, s));
  OK(cuStreamSynchronize(s));
  CHECK(seconds() - t < 0.09);
  return ok();
}
