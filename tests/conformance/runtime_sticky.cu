// An illegal address breaks the context: every later call says so, on every thread, until the
// device is reset.
#include <thread>

#include "conformance.h"

__global__ void wild(int* p) { p[threadIdx.x] = 1; }
__device__ int initialised = 5;
__global__ void fine(int* p) { *p = initialised++; }

int main() {
  int* good;
  CHECK(cudaMalloc(&good, 64));
  fine<<<1, 1>>>(good);
  int value = 0;
  CHECK(cudaMemcpy(&value, good, sizeof(value), cudaMemcpyDeviceToHost));
  EXPECT(value == 5);

  wild<<<1, 32>>>(reinterpret_cast<int*>(0x1000));
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
  void* p;
  EXPECT_ERROR(cudaMalloc(&p, 64), cudaErrorIllegalAddress);
  EXPECT_ERROR(cudaMemcpy(&value, good, sizeof(value), cudaMemcpyDeviceToHost),
               cudaErrorIllegalAddress);
  fine<<<1, 1>>>(good);
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
  std::thread([] { EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress); }).join();

  CHECK(cudaDeviceReset());
  EXPECT(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMalloc(&good, 64));
  fine<<<1, 1>>>(good);
  CHECK(cudaMemcpy(&value, good, sizeof(value), cudaMemcpyDeviceToHost));
  EXPECT(value == 5);  // variables start again
  return passed();
}
