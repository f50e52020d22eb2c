// A kernel spins until the host says so, for three seconds; the host computes on meanwhile.
#include <unistd.h>

#include "driver.h"

static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry spin_until_told(.param .u64 flag) {\n"
    "  .reg .u64 %rd<2>; .reg .u32 %r<2>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [flag];\n"
    "again:\n"
    "  ld.volatile.u32 %r1, [%rd1];\n"
    "  setp.eq.u32 %p1, %r1, 0;\n"
    "  @%p1 bra again;\n"
    "  ret;\n"
    "}\n";

int main() {
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  unsigned* flag;
  start_driver();
  OK(DRIVER(cuModuleLoadData)(&module, ptx));
  OK(DRIVER(cuModuleGetFunction)(&spin, module, "spin_until_told"));
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuMemHostAlloc)((void**)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  void* arguments[] = {&flag};
  *flag = 0;
  OK(DRIVER(cuLaunchKernel)(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
  for (int step = 1; step <= 100; ++step) {
    if (step == 60) {
      __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
      OK(DRIVER(cuStreamSynchronize)(stream));
    }
    printf("step %d\n", step);
    fflush(stdout);
    usleep(50000);
  }
  printf("done\n");
}
