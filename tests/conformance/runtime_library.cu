// A program that brings PTX as text and loads it through the runtime; bad PTX is an error with an
// explanation.
#include "conformance.h"

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 8 .u64 total;
.visible .entry count(.param .u32 step)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u32 %r1, [step];
  cvt.u64.u32 %rd1, %r1;
  mov.u64 %rd2, total;
  atom.global.add.u64 %rd3, [%rd2], %rd1;
  ret;
}
)";

int main() {
  cudaLibrary_t library;
  CHECK(cudaLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned kernels = 0;
  CHECK(cudaLibraryGetKernelCount(&kernels, library));
  EXPECT(kernels == 1);
  cudaKernel_t kernel, listed;
  CHECK(cudaLibraryGetKernel(&kernel, library, "count"));
  CHECK(cudaLibraryEnumerateKernels(&listed, 1, library));
  EXPECT(kernel == listed);
  EXPECT_ERROR(cudaLibraryGetKernel(&kernel, library, "nothing"), cudaErrorSymbolNotFound);
  unsigned step = 3;
  void* arguments[] = {&step};
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(listed), 2, 50, arguments, 0, nullptr));
  void* address;
  size_t bytes;
  CHECK(cudaLibraryGetGlobal(&address, &bytes, library, "total"));
  EXPECT(bytes == 8);
  unsigned long long total;
  CHECK(cudaMemcpy(&total, address, sizeof(total), cudaMemcpyDeviceToHost));
  EXPECT(total == 300);
  CHECK(cudaLibraryUnload(library));

  char log[1024] = {};
  cudaJitOption options[] = {cudaJitErrorLogBuffer, cudaJitErrorLogBufferSizeBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  cudaError_t error = cudaLibraryLoadData(
      &library,
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f() { frobnicate; }\n",
      options, values, 2, nullptr, nullptr, 0);
  if (error == cudaSuccess) {  // lazily loaded: the kernel cannot be had
    error = cudaLibraryGetKernel(&kernel, library, "f");
    if (error == cudaSuccess)
      error = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), 1, 1, nullptr, 0, nullptr);
  }
  EXPECT_ERROR(error, cudaErrorInvalidPtx);
  EXPECT(cudaGetLastError() == cudaErrorInvalidPtx);
  EXPECT(strlen(log) > 0);
  return passed();
}
