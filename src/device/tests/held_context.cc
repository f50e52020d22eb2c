// Holds contexts where no interposer can translate them: as numbers disguised by a mask, compared
// by functions of one of the driver's private tables. That is how NVIDIA's runtime knows its
// contexts.
//   held_context STEPS PACE_MS table|plain [ENVIRONMENT VALUE]...
// `plain` asks for no table and compares through the exported functions only. The environment is
// set once the contexts exist: the driver reads it again when it starts after a restore.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "intercept/spec/cuda_types.h"

namespace {

struct Table {
  size_t bytes;
  CUcontext (*current)();
  int (*is_context)(CUcontext);
};
constexpr uint64_t kMask = 0x5aa5c33c0ff0a55a;

void* g_driver;
template <typename F>
F entry(const char* name) {
  return reinterpret_cast<F>(dlsym(g_driver, name));
}
void need(bool right, const char* what, int step) {
  if (right) return;
  printf("step %d: %s is wrong\n", step, what);
  exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = atoi(argv[1]), pace = atoi(argv[2]);
  const bool with_table = strcmp(argv[3], "table") == 0;
  setvbuf(stdout, nullptr, _IOLBF, 1024);
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  need(g_driver, "the driver", 0);
  auto set = entry<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  auto get = entry<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
  auto create = entry<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  auto stream = entry<CUresult (*)(CUstream*, unsigned)>("cuStreamCreate");
  need(entry<CUresult (*)(unsigned)>("cuInit")(0) == CUDA_SUCCESS, "cuInit", 0);
  CUcontext context[3];
  CUstream ignored;
  need(entry<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(&context[0], 0) ==
           CUDA_SUCCESS,
       "the primary context", 0);
  for (int i = 1; i < 3; ++i) {  // other objects in between
    need(set(context[i - 1]) == CUDA_SUCCESS && stream(&ignored, 1) == CUDA_SUCCESS &&
             create(&context[i], 0, 0) == CUDA_SUCCESS,
         "a context", 0);
  }
  volatile uint64_t held[3];
  for (int i = 0; i < 3; ++i) {
    held[i] = reinterpret_cast<uint64_t>(context[i]) ^ kMask;
    if (with_table) context[i] = nullptr;
  }
  const Table* table = nullptr;
  if (with_table) {
    CUuuid id;
    memcpy(id.bytes, "simgpu own table", 16);
    need(entry<CUresult (*)(const void**, const CUuuid*)>("cuGetExportTable")(
             reinterpret_cast<const void**>(&table), &id) == CUDA_SUCCESS,
         "the table", 0);
  }
  for (int i = 4; i + 1 < argc; i += 2) setenv(argv[i], argv[i + 1], 1);
  for (int step = 1; step <= steps; ++step) {
    for (int i = 0; i < 3; ++i) {
      auto value = reinterpret_cast<CUcontext>(held[i] ^ kMask);
      CUcontext current = nullptr;
      need(set(value) == CUDA_SUCCESS && get(&current) == CUDA_SUCCESS && current == value,
           "the current context", step);
      if (!table) continue;
      need(table->is_context(value), "a context in the table's eyes", step);
      need(table->current() == value, "the table's current context", step);
    }
    printf("step %d: the contexts are what they were\n", step);
    usleep(static_cast<useconds_t>(pace) * 1000);
  }
}
