// sim_test: the simulated driver in the realm. Every import is reviewed, what it hands out lies in
// the private heap, its heap, mappings, threads and descriptors are known; wound back in a forked
// child it starts and works as in a new process, with its contexts' address ranges where they were.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <string>

#include "check.h"
#include "control.h"

#define OK(call) CHECK((call) == CUDA_SUCCESS)

template <class F>
static F* find(const char* name) {
  auto* f = reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
  CHECK(f);
  return f;
}
#define FIND(name) auto name = find<decltype(::name)>(#name)

static const char kPtx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .u32 counter = 7;\n"
    ".visible .entry add(.param .u64 out) { .reg .u64 %p; .reg .u32 %v;\n"
    "ld.param.u64 %p, [out]; cvta.to.global.u64 %p, %p; ld.global.u32 %v, [counter]; st.global.u32 "
    "[%p], %v; ret; }\n";

static CUdeviceptr work() {
  FIND(cuInit);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  FIND(cuModuleGetGlobal_v2);
  FIND(cuMemAlloc_v2);
  FIND(cuMemFree_v2);
  FIND(cuStreamCreate);
  FIND(cuStreamSynchronize);
  FIND(cuLaunchKernel);
  FIND(cuMemcpyDtoH_v2);
  CUcontext context;
  CUmodule module;
  CUfunction function;
  CUstream stream;
  CUdeviceptr global, out;
  size_t bytes;
  unsigned result = 0;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "add"));
  OK(cuModuleGetGlobal_v2(&global, &bytes, module, "counter"));
  OK(cuMemAlloc_v2(&out, 4));
  OK(cuStreamCreate(&stream, 0));
  void* parameters[] = {&out};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(&result, out, 4));
  CHECK(result == 7);
  OK(cuMemFree_v2(out));
  return global;
}

int main() {
  auto* control = static_cast<const TestControl*>(dlsym(RTLD_DEFAULT, "gpuckpt_test_control"));
  CHECK(control);
  CUdeviceptr global = work();
  if (control->unknown_imports()[0]) {
    fprintf(stderr, "imports that were not reviewed: %s\n", control->unknown_imports());
    return 1;
  }
  CHECK(control->heap_bytes() > 0);
  CHECK(control->owns(global, 4));
  uint64_t high = control->heap_high_water();
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    for (int generation = 1; generation <= 3; generation++) {
      for (int fd = 3; fd < 256; fd++)
        if (control->owns_fd(fd)) close(fd);
      control->rewind();
      control->gate_open();
      CHECK(work() == global);  // the same place for the same module
      CHECK(control->heap_high_water() > high);
      high = control->heap_high_water();
    }
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return 0;
}
