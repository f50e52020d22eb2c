/* first_call WHERE: meets the driver step by step and waits at the step WHERE until a file "go" is
 * in its folder, so that a test knows how far it had come at the snapshot. Then it goes on to the
 * end and prints what the device computed.
 *
 *   untouched    nothing of the driver yet
 *   opened       dlopen of it, no call
 *   asked        calls that need no cuInit
 *   initialised  cuInit
 *   counted      cuDeviceGetCount and a device's name
 *   context      a context
 *   runtime      libcudart and its cudaGetDeviceCount, nothing else of CUDA
 *   entering     a second thread makes the first call, cuInit, as soon as "go" is there,
 *                and waits behind it for a file "end" */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

static const char* where;

static void wait_for_file(const char* name) {
  while (access(name, F_OK) != 0) usleep(2000);
}

static void step(const char* name) {
  if (strcmp(name, where) != 0) return;
  printf("at %s\n", name);
  fflush(stdout);
  wait_for_file("go");
}

static void* enter(void* unused) {
  (void)unused;
  step("entering");
  OK(DRIVER(cuInit)(0));
  if (strcmp(where, "entering") == 0) wait_for_file("end");
  return NULL;
}

static void use_device(void) {
  CUdeviceptr memory;
  unsigned host[256], sum = 0;
  OK(DRIVER(cuMemAlloc_v2)(&memory, sizeof host));
  OK(DRIVER(cuMemsetD32_v2)(memory, 1234567, 256));
  OK(DRIVER(cuMemcpyDtoH_v2)(host, memory, sizeof host));
  for (int i = 0; i < 256; ++i) sum += host[i];
  printf("sum %u\n", sum);
}

static void use_runtime(void) {
  void* cudart = dlopen("libcudart.so.13", RTLD_NOW);
  if (!cudart) fprintf(stderr, "%s\n", dlerror()), exit(1);
  int (*count)(int*) = (int (*)(int*))dlsym(cudart, "cudaGetDeviceCount");
  int (*allocate)(void**, size_t) = (int (*)(void**, size_t))dlsym(cudart, "cudaMalloc");
  int (*set)(void*, int, size_t) = (int (*)(void*, int, size_t))dlsym(cudart, "cudaMemset");
  int (*copy)(void*, const void*, size_t, int) =
      (int (*)(void*, const void*, size_t, int))dlsym(cudart, "cudaMemcpy");
  int devices;
  void* memory;
  char host[256];
  OK(count(&devices));
  step("runtime");
  OK(allocate(&memory, sizeof host));
  OK(set(memory, 7, sizeof host));
  OK(copy(host, memory, sizeof host, 2));
  printf("%d device, last byte %d\n", devices, host[255]);
}

int main(int argc, char** argv) {
  int version, devices;
  char name[100];
  CUdevice device;
  CUcontext context;
  where = argc > 1 ? argv[1] : "";
  step("untouched");
  if (strcmp(where, "runtime") == 0) return use_runtime(), 0;
  driver_symbol("cuInit");
  step("opened");
  OK(DRIVER(cuDriverGetVersion)(&version));
  step("asked");
  pthread_t thread;
  pthread_create(&thread, NULL, enter, NULL);
  pthread_join(thread, NULL);
  step("initialised");
  OK(DRIVER(cuDeviceGetCount)(&devices));
  OK(DRIVER(cuDeviceGet)(&device, 0));
  OK(DRIVER(cuDeviceGetName)(name, sizeof name, device));
  step("counted");
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
  OK(DRIVER(cuCtxSetCurrent)(context));
  step("context");
  use_device();
  return 0;
}
