// Managed memory: one pointer on both sides, advice and prefetch accepted.
#include "conformance.h"

__global__ void advance(int* data, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] * 2 + 1;
}

int last_prefetch(const void* data) {
  int device = -9;
  CHECK(cudaMemRangeGetAttribute(&device, sizeof device, cudaMemRangeAttributeLastPrefetchLocation,
                                 data, 4096));
  return device;
}

// Many ranges at once, to places that count from a range on.
void batches() {
  void* ranges[3];
  size_t bytes[3] = {8192, 8192, 8192};
  for (void*& r : ranges) CHECK(cudaMallocManaged(&r, 8192));
  int* first = static_cast<int*>(ranges[0]);
  *first = 5;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaMemLocation places[2] = {{cudaMemLocationTypeDevice, 0}, {cudaMemLocationTypeHost, 0}};
  size_t firsts[2] = {0, 2}, wrong[2] = {0, 0};
  CHECK(cudaMemPrefetchBatchAsync(ranges, bytes, 3, places, firsts, 2, 0, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(*first == 5);
  EXPECT(last_prefetch(ranges[0]) == 0 && last_prefetch(ranges[1]) == 0);
  EXPECT(last_prefetch(ranges[2]) == cudaCpuDeviceId);
  CHECK(cudaMemDiscardBatchAsync(ranges, bytes, 2, 0, stream));
  CHECK(cudaMemDiscardAndPrefetchBatchAsync(ranges, bytes, 3, places + 1, firsts, 1, 0, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(last_prefetch(ranges[0]) == cudaCpuDeviceId);
  *first = 6;
  EXPECT(*first == 6);
  const cudaError_t bad = cudaErrorInvalidValue;
  EXPECT_ERROR(cudaMemPrefetchBatchAsync(ranges, bytes, 3, places, wrong, 2, 0, stream), bad);
  EXPECT_ERROR(cudaMemPrefetchBatchAsync(ranges, bytes, 3, places, firsts, 2, 1, stream), bad);
  EXPECT_ERROR(cudaMemPrefetchBatchAsync(ranges, bytes, 3, places, firsts, 2, 0, nullptr), bad);
  EXPECT_ERROR(cudaMemDiscardBatchAsync(ranges, bytes, 0, 0, stream), bad);
  void* plain;
  CHECK(cudaMalloc(&plain, 8192));
  void* mixed[2] = {ranges[0], plain};
  EXPECT_ERROR(cudaMemDiscardBatchAsync(mixed, bytes, 2, 0, stream), bad);
  CHECK(cudaFree(plain));
  for (void* r : ranges) CHECK(cudaFree(r));
  CHECK(cudaStreamDestroy(stream));
}

int main() {
  batches();
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
