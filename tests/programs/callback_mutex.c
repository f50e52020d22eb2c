// A host callback takes a mutex whose holder is calling the driver. Prints "step N" and "done".
#include <pthread.h>
#include <unistd.h>

#include "driver.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int calls;
static void callback(void* unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  ++calls;
  pthread_mutex_unlock(&mutex);
}

int main() {
  start_driver();
  CUstream stream;
  CUdeviceptr memory;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuMemAlloc_v2)(&memory, 4096));
  for (int step = 1; step <= 400; ++step) {
    for (int i = 0; i < 5; ++i) OK(DRIVER(cuLaunchHostFunc)(stream, callback, NULL));
    pthread_mutex_lock(&mutex);  // callbacks wait for us while we are in the driver
    OK(DRIVER(cuMemsetD8Async)(memory, step, 4096, stream));
    usleep(10000);
    OK(DRIVER(cuMemsetD8Async)(memory, step + 1, 4096, stream));
    pthread_mutex_unlock(&mutex);
    OK(DRIVER(cuStreamSynchronize)(stream));
    printf("step %d %d\n", step, calls);
    fflush(stdout);
  }
  printf("done\n");
}
