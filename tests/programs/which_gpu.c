// which_gpu STEPS PACE_MS: counts in the memory of its first device, and says at each step which
// board that is (the beginning of its UUID).
#include <unistd.h>

#include "driver.h"

int main(int argc, char** argv) {
  long steps = argc > 1 ? atol(argv[1]) : 40, pace = argc > 2 ? atol(argv[2]) : 20;
  CUdeviceptr memory;
  CUuuid board;
  unsigned count;
  start_driver();
  OK(DRIVER(cuMemAlloc_v2)(&memory, 1 << 20));
  OK(DRIVER(cuMemsetD32_v2)(memory, 0, 1 << 18));
  for (long step = 1; step <= steps; ++step) {
    OK(DRIVER(cuMemcpyDtoH_v2)(&count, memory, sizeof count));
    OK(DRIVER(cuMemsetD32_v2)(memory, ++count, 1 << 18));
    OK(DRIVER(cuDeviceGetUuid_v2)(&board, 0));
    printf("%u ", count);
    for (int i = 0; i < 8; ++i) printf("%02x", (unsigned char)board.bytes[i]);
    printf("\n");
    fflush(stdout);
    usleep((useconds_t)pace * 1000);
  }
  return 0;
}
