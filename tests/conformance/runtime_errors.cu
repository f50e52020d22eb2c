// Which error a mistake gives, and what cudaGetLastError remembers: per thread, handed out once.
#include <thread>

#include "conformance.h"

__global__ void nothing() {}
__global__ void hungry() {
  extern __shared__ int shared[];
  shared[threadIdx.x] = 0;
}

int main() {
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
  EXPECT(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
  EXPECT(strcmp(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code") ==
         0);

  EXPECT_ERROR(cudaSetDevice(99), cudaErrorInvalidDevice);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaSuccess);

  nothing<<<0, 1>>>();
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  nothing<<<1, 1025>>>();
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  nothing<<<dim3(1, 70000), 1>>>();
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  hungry<<<1, 32, 1 << 20>>>();
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  nothing<<<1, 1>>>();
  EXPECT(cudaGetLastError() == cudaSuccess);
  CHECK(cudaDeviceSynchronize());

  void* p = nullptr;
  EXPECT_ERROR(cudaMalloc(&p, size_t{1} << 60), cudaErrorMemoryAllocation);
  EXPECT(p == nullptr);
  EXPECT_ERROR(cudaMalloc(nullptr, 16), cudaErrorInvalidValue);
  int host = 0;
  EXPECT_ERROR(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaFreeHost(&host), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMemcpy(&host, &host, 4, static_cast<cudaMemcpyKind>(9)),
               cudaErrorInvalidMemcpyDirection);
  EXPECT_ERROR(cudaHostUnregister(&host), cudaErrorHostMemoryNotRegistered);
  CHECK(cudaMalloc(&p, 64));
  CHECK(cudaFree(p));
  EXPECT_ERROR(cudaFree(p), cudaErrorInvalidValue);  // twice

  EXPECT_ERROR(cudaLaunchKernel(&host, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamDestroy(stream));
  cudaFuncAttributes attributes;
  EXPECT_ERROR(cudaFuncGetAttributes(&attributes, &host), cudaErrorInvalidDeviceFunction);
  EXPECT_ERROR(cudaMemcpyToSymbol(&host, &host, 4), cudaErrorInvalidSymbol);

  // Another thread has its own last error.
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidSymbol);
  std::thread([] {
    EXPECT(cudaPeekAtLastError() == cudaSuccess);
    EXPECT_ERROR(cudaSetDevice(-1), cudaErrorInvalidDevice);
  }).join();
  EXPECT(cudaGetLastError() == cudaErrorInvalidSymbol);

  // The context is as good as before.
  nothing<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  return passed();
}
