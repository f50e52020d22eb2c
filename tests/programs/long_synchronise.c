// One thread synchronises with ten seconds of work while others use the GPU.
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

static CUcontext context;
static void slow(void* seconds) { sleep((unsigned)(size_t)seconds); }
static void* synchronise(void* seconds) {
  CUstream stream;
  OK(DRIVER(cuCtxSetCurrent)(context));
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuLaunchHostFunc)(stream, slow, seconds));
  OK(DRIVER(cuStreamSynchronize)(stream));
  return NULL;
}

int main(int argc, char** argv) {
  size_t seconds = argc > 1 ? (size_t)atoi(argv[1]) : 10;
  pthread_t thread;
  CUstream stream;
  CUdeviceptr memory;
  start_driver();
  OK(DRIVER(cuCtxGetCurrent)(&context));
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuMemAlloc_v2)(&memory, 1 << 20));
  pthread_create(&thread, NULL, synchronise, (void*)seconds);
  for (size_t step = 1; step <= seconds * 10; ++step) {
    unsigned char back = 0;
    OK(DRIVER(cuMemsetD8Async)(memory, (unsigned char)step, 1 << 20, stream));
    OK(DRIVER(cuStreamSynchronize)(stream));
    OK(DRIVER(cuMemcpyDtoHAsync_v2)(&back, memory + 5, 1, stream));
    OK(DRIVER(cuStreamSynchronize)(stream));
    printf("step %zu %d\n", step, back);
    fflush(stdout);
    usleep(80000);
  }
  pthread_join(thread, NULL);
  printf("done\n");
}
