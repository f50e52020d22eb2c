// device_fails STEPS PACE_MS: from its third line on the simulated driver would fail if it started
// anew: a restore of it cannot bring the device back.
#include <unistd.h>

#include "driver.h"

int main(int argc, char** argv) {
  long steps = argc > 1 ? atol(argv[1]) : 40, pace = argc > 2 ? atol(argv[2]) : 20;
  CUdeviceptr memory;
  unsigned back;
  start_driver();
  OK(DRIVER(cuMemAlloc_v2)(&memory, 4096));
  OK(DRIVER(cuMemsetD32_v2)(memory, 7, 1024));
  for (long step = 1; step <= steps; ++step) {
    if (step == 3) setenv("SIMGPU_FAIL", "cuMemCreate:1", 1);
    OK(DRIVER(cuMemcpyDtoH_v2)(&back, memory, sizeof back));
    printf("step %ld %u\n", step, back);
    fflush(stdout);
    usleep((useconds_t)pace * 1000);
  }
  printf("done\n");
}
