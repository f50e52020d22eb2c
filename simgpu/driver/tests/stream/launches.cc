// Kernels see device, pinned and registered memory; launches are checked; globals hold what they
// should.
#include "kernels.h"

int main() {
  start();
  CUmodule m = load(kKernels);
  CUfunction fill = function(m, "fill"), count = function(m, "count");
  EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&count, m, "nope"));
  CUdeviceptr d;
  OK(cuMemAlloc(&d, 4000));
  uint32_t *pinned, v[1000];
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 4000, 0));
  static uint32_t plain[1000];
  OK(cuMemHostRegister(plain, sizeof plain, 0));
  OK(launch1(fill, 8, 128, nullptr, d, 7u, 1000u));
  OK(launch1(fill, 8, 128, nullptr, reinterpret_cast<CUdeviceptr>(pinned), 8u, 1000u));
  OK(launch1(fill, 8, 128, nullptr, reinterpret_cast<CUdeviceptr>(plain), 9u, 1000u));
  OK(cuMemcpyDtoH(v, d, 4000));
  CHECK(v[0] == 7 && v[999] == 7 && pinned[999] == 8 && plain[999] == 9);

  // Packed parameters.
  struct {
    CUdeviceptr p;
    uint32_t value, n;
  } packed{d, 11, 1000};
  size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(fill, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  CUlaunchConfig config;
  memset(&config, 0, sizeof config);
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY =
      config.blockDimZ = 1;
  CUlaunchAttribute attribute;
  memset(&attribute, 0, sizeof attribute);
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  count = function(m, "count");
  OK(cuLaunchKernelEx(&config, count, nullptr, nullptr));
  OK(cuMemcpyDtoH(v, d, 4000));
  CHECK(v[500] == 11);

  CUdeviceptr counter, where, table;
  size_t bytes;
  OK(cuModuleGetGlobal(&counter, &bytes, m, "counter"));
  CHECK(bytes == 4);
  OK(cuModuleGetGlobal(&where, nullptr, m, "where"));
  OK(cuModuleGetGlobal(&table, &bytes, m, "table"));
  CHECK(bytes == 16);
  CUdeviceptr held;
  OK(cuMemcpyDtoH(v, counter, 4));
  OK(cuMemcpyDtoH(&held, where, 8));
  CHECK(v[0] == 6 && held == counter);
  EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&counter, nullptr, m, "nope"));

  EXPECT(CUDA_ERROR_INVALID_VALUE, launch1(count, 0, 1, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, launch1(count, 1, 1025, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 60 << 10, nullptr, nullptr, nullptr));
  OK(cuFuncSetAttribute(count, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
  OK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 60 << 10, nullptr, nullptr, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
         cuLaunchCooperativeKernel(count, 60000, 1, 1, 512, 1, 1, 0, nullptr, nullptr));
  CUfunction bounded = function(m, "bounded");
  int value;
  OK(launch1(bounded, 1, 64, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, launch1(bounded, 1, 65, nullptr));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, bounded));
  CHECK(value == 8);
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, bounded));
  CHECK(value == 16);
  size_t offset;
  OK(cuFuncGetParamInfo(fill, 1, &offset, &bytes));
  CHECK(offset == 8 && bytes == 4);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(fill, 3, &offset, &bytes));
  int blocks, block;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 128, 0));
  CHECK(blocks > 0);
  OK(cuOccupancyMaxPotentialBlockSize(&blocks, &block, fill, nullptr, 0, 0));
  CHECK(block >= 32 && block <= 1024);

  // A library's kernel is launched as a function, and its module is one per context.
  CUlibrary library;
  CUkernel kernel;
  OK(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "count"));
  OK(launch1(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr));
  OK(cuLibraryGetGlobal(&held, &bytes, library, "counter"));
  OK(cuMemcpyDtoH(v, held, 4));
  CHECK(v[0] == 6 && held != counter);
  OK(cuLibraryUnload(library));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, launch1(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr));
  OK(cuModuleUnload(m));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, launch1(count, 1, 1, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(v, where, 4));
  return ok();
}
