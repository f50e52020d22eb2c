// Two streams wait for values that the other one writes; each write is a driver call made only
// after the wait was queued.
#include <unistd.h>

#include "driver.h"

int main() {
  start_driver();
  CUstream a, b;
  CUdeviceptr flags;
  OK(DRIVER(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuMemAlloc_v2)(&flags, 8));
  OK(DRIVER(cuMemsetD8_v2)(flags, 0, 8));
  for (unsigned step = 1; step <= 400; ++step) {
    OK(DRIVER(cuStreamWaitValue32_v2)(a, flags, step, CU_STREAM_WAIT_VALUE_GEQ));
    OK(DRIVER(cuStreamWriteValue32_v2)(a, flags + 4, step, 0));
    usleep(10000);  // a waits for us: no drain can end it
    OK(DRIVER(cuStreamWriteValue32_v2)(b, flags, step, 0));
    OK(DRIVER(cuStreamWaitValue32_v2)(b, flags + 4, step, CU_STREAM_WAIT_VALUE_GEQ));
    OK(DRIVER(cuStreamSynchronize)(a));
    OK(DRIVER(cuStreamSynchronize)(b));
    printf("step %u\n", step);
    fflush(stdout);
  }
  printf("done\n");
}
