// For small C programs: the driver by dlopen, no toolkit library at link time.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void* driver_handle;
static void* driver_symbol(const char* name) {
  if (!driver_handle) driver_handle = dlopen("libcuda.so.1", RTLD_NOW);
  void* symbol = driver_handle ? dlsym(driver_handle, name) : NULL;
  if (!symbol) {
    fprintf(stderr, "no %s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}
// DRIVER(cuMemAlloc_v2)(&p, n)
#define DRIVER(name) ((__typeof__(&name))driver_symbol(#name))
#define OK(call)                                                           \
  do {                                                                     \
    int rc_ = (int)(call);                                                 \
    if (rc_ != 0) {                                                        \
      fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, rc_); \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

static inline void start_driver(void) {
  CUdevice device;
  CUcontext context;
  OK(DRIVER(cuInit)(0));
  OK(DRIVER(cuDeviceGet)(&device, 0));
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
  OK(DRIVER(cuCtxSetCurrent)(context));
}
