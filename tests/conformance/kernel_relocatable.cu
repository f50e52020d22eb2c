// -rdc=true: device code of two sources that call each other, share variables and have private
// names in common.
#include "conformance.h"

extern __device__ int shared_value;
extern __constant__ int table[4];
extern __device__ int twice(int);
static __device__ __noinline__ int hidden(int x) { return x + 1; }
__device__ __noinline__ int from_main(int x) { return x * 100; }

__global__ void kernel(int* out) {
  const int i = (int)threadIdx.x;
  out[i] = twice(hidden(i)) + shared_value + table[i & 3];
}

int main() {
  DeviceVector<int> out(32);
  kernel<<<1, 32>>>(out.get());
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  const int value = 40;
  CHECK(cudaMemcpyToSymbol(shared_value, &value, sizeof value));
  std::vector<int> got = out.copy();
  for (int i = 0; i < 32; ++i) EXPECT(got[(size_t)i] == (i + 1) * 202 + 7 + (i & 3) * 11);
  kernel<<<1, 32>>>(out.get());
  CHECK(cudaDeviceSynchronize());
  got = out.copy();
  for (int i = 0; i < 32; ++i) EXPECT(got[(size_t)i] == (i + 1) * 202 + 40 + (i & 3) * 11);
  return passed();
}
