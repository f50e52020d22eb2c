// Managed memory: one pointer on both sides, advice and prefetch accepted.
#include "conformance.h"

__global__ void advance(int* data, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] * 2 + 1;
}

int main() {
  constexpr int kCount = 5000;
  int* data;
  CHECK(cudaMallocManaged(&data, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) data[i] = i;
  cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemAdvise(data, kCount * sizeof(int), cudaMemAdviseSetPreferredLocation, gpu));
  CHECK(cudaMemPrefetchAsync(data, kCount * sizeof(int), gpu, 0));
  for (int turn = 0; turn < 3; ++turn) {
    advance<<<(kCount + 127) / 128, 128>>>(data, kCount);
    CHECK(cudaDeviceSynchronize());
    ++data[turn];
  }
  for (int i = 0; i < kCount; ++i) {
    int x = i;
    for (int turn = 0; turn < 3; ++turn) x = x * 2 + 1 + (turn == i);
    EXPECT(data[i] == x);
  }
  CHECK(cudaFree(data));
  return passed();
}
