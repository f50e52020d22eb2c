// For the driver's tests: tiny programs, one behaviour each, on the public driver API. Exit 0 and
// "ok", or the line that was wrong.
#pragma once

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cstdint>

inline const char* name_of(CUresult r) {
  const char* name = nullptr;
  cuGetErrorName(r, &name);
  return name ? name : "?";
}

#define EXPECT(result, call)                                                                      \
  do {                                                                                            \
    CUresult check_r = (call);                                                                    \
    if (check_r != (result)) {                                                                    \
      fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, name_of(check_r), \
              #result);                                                                           \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)
#define OK(call) EXPECT(CUDA_SUCCESS, call)
#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

inline double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline void rest(double s) {
  timespec t{static_cast<time_t>(s),
             static_cast<long>((s - static_cast<double>(static_cast<time_t>(s))) * 1e9)};
  nanosleep(&t, nullptr);
}

inline CUcontext start(int ordinal = 0) {
  OK(cuInit(0));
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, ordinal));
  OK(cuCtxSetCurrent(context));
  return context;
}

inline const CUmemPoolProps kPoolOnDevice0 = [] {
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return props;
}();

inline int ok() {
  printf("ok\n");
  return 0;
}

inline CUmodule load(const char* ptx) {
  CUmodule module;
  OK(cuModuleLoadData(&module, ptx));
  return module;
}

inline CUfunction function(CUmodule module, const char* name) {
  CUfunction f;
  OK(cuModuleGetFunction(&f, module, name));
  return f;
}

template <class... A>
inline CUresult launch1(CUfunction f, unsigned grid, unsigned block, CUstream stream,
                        A... arguments) {
  void* params[] = {static_cast<void*>(&arguments)..., nullptr};
  return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, params, nullptr);
}

#define PTX_HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"
