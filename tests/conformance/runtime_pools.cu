// Stream-ordered memory: pools and their attributes, reuse, use counts, access.
#include "conformance.h"

__global__ void store(int* p, int value) { p[threadIdx.x] = value + threadIdx.x; }

int main() {
  int supported = 0;
  CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
  EXPECT(supported == 1);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaMemPool_t by_default, current, mine;
  CHECK(cudaDeviceGetDefaultMemPool(&by_default, 0));
  CHECK(cudaDeviceGetMemPool(&current, 0));
  EXPECT(by_default == current);
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPoolCreate(&mine, &props));
  uint64_t threshold = 123456, read = 0;
  CHECK(cudaMemPoolSetAttribute(mine, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolGetAttribute(mine, cudaMemPoolAttrReleaseThreshold, &read));
  EXPECT(read == threshold);

  int *p, *q, host[32];
  CHECK(cudaMallocFromPoolAsync(&p, 1000, mine, stream));
  store<<<1, 32, 0, stream>>>(p, 5);
  CHECK(cudaMemcpyAsync(host, p, sizeof(host), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaMemPoolGetAttribute(mine, cudaMemPoolAttrUsedMemCurrent, &read));
  EXPECT(read >= 1000);
  CHECK(cudaFreeAsync(p, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(host[0] == 5 && host[31] == 36);
  CHECK(cudaMemPoolGetAttribute(mine, cudaMemPoolAttrUsedMemCurrent, &read));
  EXPECT(read == 0);

  CHECK(cudaDeviceSetMemPool(0, mine));
  CHECK(cudaMallocAsync(&p, 4096, stream));
  CHECK(cudaMemPoolGetAttribute(mine, cudaMemPoolAttrUsedMemCurrent, &read));
  EXPECT(read >= 4096);
  CHECK(cudaMallocAsync(&q, 4096, stream));
  EXPECT(p != q);
  CHECK(cudaFree(q));  // an ordinary free synchronises and works too
  CHECK(cudaFreeAsync(p, stream));
  CHECK(cudaFreeAsync(nullptr, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaDeviceSetMemPool(0, by_default));
  CHECK(cudaMemPoolTrimTo(mine, 0));
  CHECK(cudaMemPoolDestroy(mine));
  EXPECT_ERROR(cudaMallocAsync(&p, size_t{1} << 60, stream), cudaErrorMemoryAllocation);
  CHECK(cudaStreamDestroy(stream));
  return passed();
}
