// A process that ends with work in flight ends.
#include "check.h"

static void CUDA_CB forever(void*) {
  for (;;) rest(1);
}
static void late() {
  CUdeviceptr d;
  CHECK(cuMemAlloc(&d, 64) == CUDA_ERROR_DEINITIALIZED);
}

int main() {
  atexit(late);  // before cuInit: runs after the driver's handler
  start();
  CUstream s, t;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  *flag = 0;
  OK(cuStreamWaitValue32(t, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuLaunchHostFunc(s, forever, nullptr));
  rest(0.02);
  return ok();
}
