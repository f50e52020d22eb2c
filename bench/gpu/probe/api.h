// The driver calls that the probes use, and how they report: one `@{json}` line per stage, flushed,
// so that a crash leaves everything up to it.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#ifdef PROBE_UNDER_DOOR  // the door watches
#define PROBE_NOTE(name)
#else
#include "evidence.h"
#define PROBE_NOTE(name) probe::evidence_note("step", name, 0, 0, 0, 0, 0, nullptr)
#endif

inline double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

__attribute__((format(printf, 1, 2))) inline void stage(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("@{");
  vprintf(format, arguments);
  printf("}\n");
  fflush(stdout);
  va_end(arguments);
}

struct Api {
  void* handle = nullptr;
// clang-format off
#define CALLS(X)                                                                                  \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName)           \
  X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxGetCurrent)       \
  X(cuCtxSynchronize) X(cuModuleLoadDataEx) X(cuModuleGetFunction) X(cuLaunchKernel)                \
  X(cuStreamCreate) X(cuStreamSynchronize) X(cuMemAddressReserve) X(cuMemAddressFree)             \
  X(cuMemCreate) X(cuMemMap) X(cuMemUnmap) X(cuMemRelease) X(cuMemSetAccess)                      \
  X(cuMemGetAllocationGranularity) X(cuMemHostRegister_v2) X(cuMemHostUnregister)
// clang-format on
#define DECLARE(name) decltype(&::name) name = nullptr;
  CALLS(DECLARE)
#undef DECLARE
  decltype(&::cuMemAlloc_v2) cuMemAlloc = nullptr;
  decltype(&::cuMemFree_v2) cuMemFree = nullptr;
  decltype(&::cuMemcpyHtoD_v2) cuMemcpyHtoD = nullptr;
  decltype(&::cuMemcpyDtoH_v2) cuMemcpyDtoH = nullptr;
  decltype(&::cuMemsetD8_v2) cuMemsetD8 = nullptr;
  decltype(&::cuMemGetInfo_v2) cuMemGetInfo = nullptr;
  decltype(&::cuModuleGetGlobal_v2) cuModuleGetGlobal = nullptr;
  decltype(&::cuDeviceTotalMem_v2) cuDeviceTotalMem = nullptr;
  decltype(&::cuDevicePrimaryCtxRelease_v2) cuDevicePrimaryCtxRelease = nullptr;

  void bind(void* from) {
    handle = from;
#define BIND(name) name = reinterpret_cast<decltype(name)>(dlsym(from, #name));
    CALLS(BIND)
#undef BIND
#define BIND2(field, symbol) field = reinterpret_cast<decltype(field)>(dlsym(from, symbol));
    BIND2(cuMemAlloc, "cuMemAlloc_v2")
    BIND2(cuMemFree, "cuMemFree_v2")
    BIND2(cuMemcpyHtoD, "cuMemcpyHtoD_v2")
    BIND2(cuMemcpyDtoH, "cuMemcpyDtoH_v2")
    BIND2(cuMemsetD8, "cuMemsetD8_v2")
    BIND2(cuMemGetInfo, "cuMemGetInfo_v2")
    BIND2(cuModuleGetGlobal, "cuModuleGetGlobal_v2")
    BIND2(cuDeviceTotalMem, "cuDeviceTotalMem_v2")
    BIND2(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")
#undef BIND2
#undef CALLS
  }
};

// For rehearsals: PROBE_FAULT=crash@STEP or hang@STEP.
inline void rehearse_fault(const char* name) {
  static const char* fault = getenv("PROBE_FAULT");
  if (!fault) return;
  const char* at = strchr(fault, '@');
  if (!at || strcmp(at + 1, name) != 0) return;
  if (*fault == 'c') *reinterpret_cast<volatile int*>(0x18) = 1;
  for (;;) pause();
}

// Calls one driver function, reports its result and time, gives the result back.
#define STEP(name, call)                                                                \
  [&]() -> int {                                                                        \
    PROBE_NOTE(name);                                                                   \
    rehearse_fault(name);                                                               \
    double start_ = now_ms();                                                           \
    int rc_ = static_cast<int>(call);                                                   \
    stage("\"stage\": \"%s\", \"rc\": %d, \"ms\": %.3f", name, rc_, now_ms() - start_); \
    return rc_;                                                                         \
  }()

// A global, a constant, a function pointer and a kernel: out[i] = counter + i; where() stores the
// device address of twist.
inline const char kPtx[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 41;
.visible .global .align 8 .b8 table[4096];
.visible .const .align 4 .u32 fixed = 7;
.visible .func (.param .b32 r) twist(.param .b32 a) {
  .reg .u32 %x;
  ld.param.u32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret;
}
.visible .entry fill(.param .u64 out, .param .u32 n) {
  .reg .u64 %p, %o; .reg .u32 %i, %t, %b, %n, %v; .reg .pred %q;
  ld.param.u64 %p, [out]; ld.param.u32 %n, [n];
  cvta.to.global.u64 %p, %p;
  mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %t, %ntid.x;
  mad.lo.u32 %i, %b, %t, %i;
  setp.ge.u32 %q, %i, %n; @%q bra DONE;
  ld.global.u32 %v, [counter]; add.u32 %v, %v, %i;
  mul.wide.u32 %o, %i, 4; add.u64 %p, %p, %o;
  st.global.u32 [%p], %v;
DONE: ret;
}
.visible .entry where(.param .u64 out) {
  .reg .u64 %p, %f;
  ld.param.u64 %p, [out]; cvta.to.global.u64 %p, %p;
  mov.u64 %f, twist; st.global.u64 [%p], %f;
  ret;
}
)";

// cuInit, and the primary context of device 0, current in this thread. 0, or what the driver
// answered.
inline int enter_context(Api& api, CUdevice* device, CUcontext* context) {
  if (int rc = STEP("cuInit", api.cuInit(0))) return rc;
  if (int rc = STEP("device", api.cuDeviceGet(device, 0))) return rc;
  if (int rc = STEP("context", api.cuDevicePrimaryCtxRetain(context, *device))) return rc;
  return STEP("current", api.cuCtxSetCurrent(*context));
}

// A module, and what the compiler says when it refuses.
inline CUresult load_module(Api& api, CUmodule* module, const void* image) {
  static char log[1500];
  log[0] = 0;
  CUjit_option keys[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  CUresult rc = api.cuModuleLoadDataEx(module, image, 2, keys, values);
  if (rc != CUDA_SUCCESS && log[0]) {
    for (char* c = log; *c; ++c)
      if (*c < 0x20 || *c > 0x7e || *c == '"' || *c == '\\') *c = ' ';
    stage("\"stage\": \"compiler\", \"text\": \"%s\"", log);
  }
  return rc;
}

// Loads the module into the current context, runs the kernel on fresh memory, checks its result. 0
// = right.
inline int try_kernel(Api& api, CUmodule* module_out = nullptr) {
  CUmodule module;
  CUfunction function;
  CUdeviceptr out;
  unsigned n = 4096;
  int rc;
  if ((rc = STEP("module", load_module(api, &module, kPtx)))) return rc;
  if ((rc = STEP("function", api.cuModuleGetFunction(&function, module, "fill")))) return rc;
  if ((rc = STEP("alloc", api.cuMemAlloc(&out, n * 4)))) return rc;
  void* arguments[] = {&out, &n};
  if ((rc = STEP("launch", api.cuLaunchKernel(function, 16, 1, 1, 256, 1, 1, 0, nullptr, arguments,
                                              nullptr))))
    return rc;
  if ((rc = STEP("synchronize", api.cuCtxSynchronize()))) return rc;
  static unsigned result[4096];
  if ((rc = STEP("copy", api.cuMemcpyDtoH(result, out, n * 4)))) return rc;
  for (unsigned i = 0; i < n; ++i)
    if (result[i] != 41 + i) {
      stage("\"stage\": \"wrong\", \"index\": %u, \"value\": %u", i, result[i]);
      return -1;
    }
  stage(
      "\"stage\": \"kernel\", \"rc\": 0, \"module\": \"%p\", \"function\": \"%p\", \"memory\": "
      "\"0x%llx\"",
      (void*)module, (void*)function, out);
  if (module_out) *module_out = module;
  return 0;
}
