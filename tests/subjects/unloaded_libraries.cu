// Libraries that are unloaded after their functions were asked for, one way and the other, and
// whose values others get since.
#include <cuda.h>

#include "subject.h"

namespace {

const char kPtx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .u32 total;\n"
    ".visible .entry go(.param .u32 n) {\n"
    "  .reg .b32 %r<3>;\n"
    "  ld.param.u32 %r1, [n]; ld.global.u32 %r2, [total];\n"
    "  mad.lo.s32 %r2, %r2, 3, %r1; st.global.u32 [total], %r2; ret;\n}\n";

struct Loaded {
  CUlibrary library = nullptr;
  CUfunction function;
  CUdeviceptr total;
  size_t bytes;

  void load(bool by_module) {
    CUkernel kernel;
    CUmodule module;
    CHECK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "go"));
    CHECK(cuLibraryGetModule(&module, library));
    CHECK(by_module ? cuModuleGetFunction(&function, module, "go")
                    : cuKernelGetFunction(&function, kernel));
    CHECK(cuLibraryGetGlobal(&total, &bytes, library, "total"));
    CHECK(cuMemsetD32(total, 7, 1));
  }
  uint32_t use(uint32_t n) {
    uint32_t value;
    void* arguments[] = {&n};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(cuMemcpyDtoH(&value, total, 4));
    return value;
  }
};

}  // namespace

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  CHECK(cuInit(0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  Loaded kept[3];
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    Loaded& next = kept[step % 3];
    if (next.library) CHECK(cuLibraryUnload(next.library));
    next.load(step % 2);
    for (Loaded& l : kept)
      if (l.library) digest.add(l.use(static_cast<uint32_t>(step)));
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
