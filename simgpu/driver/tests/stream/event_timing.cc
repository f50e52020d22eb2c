// Events record the time at which the stream reaches them, not the time of the call.
#include "check.h"

static void CUDA_CB nap(void*) { rest(0.06); }

int main() {
  start();
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUevent a, b, c, untimed;
  OK(cuEventCreate(&a, 0));
  OK(cuEventCreate(&b, 0));
  OK(cuEventCreate(&c, 0));
  OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  OK(cuEventQuery(a));  // never recorded: done
  float ms;
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, b));
  OK(cuEventRecord(a, s));
  OK(cuLaunchHostFunc(s, nap, nullptr));
  OK(cuEventRecord(b, s));
  OK(cuLaunchHostFunc(s, nap, nullptr));
  OK(cuEventRecord(c, s));
  OK(cuEventRecord(untimed, s));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, a, c));
  OK(cuEventSynchronize(c));
  OK(cuEventElapsedTime(&ms, a, b));
  CHECK(ms > 55 && ms < 2000);
  float more;
  OK(cuEventElapsedTime(&more, a, c));
  CHECK(more > ms + 55);
  OK(cuEventElapsedTime(&more, b, a));
  CHECK(more == -ms);
  OK(cuEventSynchronize(untimed));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, untimed));
  return ok();
}
