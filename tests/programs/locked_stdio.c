// locked_stdio STEPS PACE_MS [stdin]: a thread holds the lock of libc's stderr, or of stdin (as one
// that waits in fgets() does), for most of the program's life, while the main thread uses the GPU: much memory of it, all of which is looked at in each step.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

enum { kWords = 12 << 20 };
static unsigned words[kWords];

static volatile int ended;
static void* holder(void* stream) {
  flockfile(stream);
  while (!ended) usleep(5000);
  funlockfile(stream);
  return NULL;
}

int main(int argc, char** argv) {
  long steps = argc > 1 ? atol(argv[1]) : 40, pace = argc > 2 ? atol(argv[2]) : 20;
  pthread_t thread;
  CUdeviceptr memory, large;
  unsigned back;
  start_driver();
  OK(DRIVER(cuMemAlloc_v2)(&memory, 4096));
  OK(DRIVER(cuMemsetD32_v2)(memory, 1, 1024));
  for (unsigned i = 0; i < kWords; ++i) words[i] = (i ^ i >> 9) * 2654435761u;
  OK(DRIVER(cuMemAlloc_v2)(&large, sizeof words));
  OK(DRIVER(cuMemcpyHtoD_v2)(large, words, sizeof words));
  pthread_create(&thread, NULL, holder, argc > 3 ? stdin : stderr);
  for (long step = 1; step <= steps; ++step) {
    OK(DRIVER(cuMemcpyDtoH_v2)(&back, memory, sizeof back));
    OK(DRIVER(cuMemsetD32_v2)(memory, back * 5 + 1, 1024));
    memset(words, 0, sizeof words);
    OK(DRIVER(cuMemcpyDtoH_v2)(words, large, sizeof words));
    unsigned wrong = 0;
    for (unsigned i = 0; i < kWords; ++i) wrong += words[i] != (i ^ i >> 9) * 2654435761u;
    printf("step %ld %u %u\n", step, back, wrong);
    fflush(stdout);
    usleep((useconds_t)pace * 1000);
  }
  ended = 1;
  pthread_join(thread, NULL);
  printf("done\n");
}
