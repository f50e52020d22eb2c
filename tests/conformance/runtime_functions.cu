// Kernels as objects: attributes, names, parameters, occupancy, large dynamic shared memory, and
// every way to launch.
#include "conformance.h"

__global__ void scale(int* data, short factor, double offset, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] * factor + static_cast<int>(offset);
}

__global__ void __launch_bounds__(256) fixedShared(int* out) {
  __shared__ int buffer[512];
  buffer[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

__global__ void bigShared(int* out, int words) {
  extern __shared__ int dynamic[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) dynamic[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) *out = dynamic[words - 1];
}

template <typename T>
__global__ void generic(T* out) {
  *out = static_cast<T>(2.5);
}

int main() {
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, fixedShared));
  EXPECT(attributes.sharedSizeBytes == 2048);
  EXPECT(attributes.maxThreadsPerBlock >= 256 && attributes.ptxVersion >= 75);
  const char* name;
  CHECK(cudaFuncGetName(&name, reinterpret_cast<const void*>(scale)));
  EXPECT(strcmp(name, "_Z5scalePisdi") == 0);
  size_t offset, bytes;
  const size_t want[4][2] = {{0, 8}, {8, 2}, {16, 8}, {24, 4}};
  for (int i = 0; i < 4; ++i) {
    CHECK(cudaFuncGetParamInfo(reinterpret_cast<const void*>(scale), i, &offset, &bytes));
    EXPECT(offset == want[i][0] && bytes == want[i][1]);
  }
  EXPECT_ERROR(cudaFuncGetParamInfo(reinterpret_cast<const void*>(scale), 4, &offset, &bytes),
               cudaErrorInvalidValue);

  int blocks, grid, block;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fixedShared, 256, 0));
  EXPECT(blocks >= 1);
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale));
  EXPECT(grid >= 1 && block >= 32 && block <= 1024);

  // The same kernel through four doors.
  std::vector<int> host(100);
  for (int i = 0; i < 100; ++i) host[i] = i;
  DeviceVector<int> data(host);
  int* pointer = data.get();
  short factor = 3;
  double add = 7.9;
  int count = 100;
  void* arguments[] = {&pointer, &factor, &add, &count};
  scale<<<4, 32>>>(pointer, factor, add, count);
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(scale), 4, 32, arguments, 0, nullptr));
  cudaKernel_t kernel;
  CHECK(cudaGetKernel(&kernel, reinterpret_cast<const void*>(scale)));
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), 4, 32, arguments, 0, nullptr));
  cudaLaunchConfig_t config = {};
  config.gridDim = 4;
  config.blockDim = 32;
  CHECK(cudaLaunchKernelEx(&config, scale, pointer, factor, add, count));
  auto got = data.copy();
  for (int i = 0; i < 100; ++i) {
    int x = i;
    for (int turn = 0; turn < 4; ++turn) x = x * 3 + 7;
    EXPECT(got[i] == x);
  }
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(scale)));
  EXPECT(function != nullptr);

  // More dynamic shared memory than the default needs to be asked for.
  constexpr int kBig = 60 * 1024;
  DeviceVector<int> one(1);
  bigShared<<<1, 64, kBig>>>(one.get(), kBig / 4);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(bigShared, cudaFuncAttributeMaxDynamicSharedMemorySize, kBig));
  bigShared<<<1, 64, kBig>>>(one.get(), kBig / 4);
  CHECK(cudaGetLastError());
  EXPECT(one.copy()[0] == kBig / 4 - 1);
  DeviceVector<double> real(1);
  generic<<<1, 1>>>(real.get());
  EXPECT(real.copy()[0] == 2.5);
  generic<<<1, 1>>>(one.get());
  EXPECT(one.copy()[0] == 2);
  return passed();
}
