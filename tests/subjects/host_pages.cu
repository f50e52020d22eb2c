// The program's own mappings of memory that lies with the host: a kernel and the host take turns,
// and a thread counts there and in ordinary memory, without ever waiting.
#include <cuda.h>

#include <atomic>
#include <thread>

#include "subject.h"

constexpr int kWords = 4096, kCounter = kWords, kBlocks = 16;
size_t page_bytes;

__global__ void fold(uint32_t* data, uint32_t step) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = mix(data[i] + step + i);
}

uint32_t* map_page(CUmemLocationType where) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = where;
  CHECK(cuMemGetAllocationGranularity(&page_bytes, &properties,
                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CUmemGenericAllocationHandle page;
  CUdeviceptr at;
  CUmemAccessDesc access[2] = {};
  access[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access[1].location.type = where;
  for (CUmemAccessDesc& a : access) a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemAddressReserve(&at, page_bytes, 0, 0, 0));
  CHECK(cuMemCreate(&page, page_bytes, &properties, 0));
  CHECK(cuMemMap(at, page_bytes, 0, page, 0));
  CHECK(cuMemSetAccess(at, page_bytes, access, 2));
  CHECK(cuMemRelease(page));
  return reinterpret_cast<uint32_t*>(at);
}

std::atomic<bool> over{false};
volatile uint32_t counted = 0;

void count(volatile uint32_t* there) {
  while (!over) {
    EXPECT(*there == counted);
    counted = counted + 1;
    *there = counted;
  }
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  CHECK(cuInit(0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  uint32_t* pages[] = {map_page(CU_MEM_LOCATION_TYPE_HOST),
                       map_page(CU_MEM_LOCATION_TYPE_HOST_NUMA)};
  for (uint32_t* page : pages)
    for (int i = 0; i <= kCounter; ++i) page[i] = 0;
  std::thread counter(count, pages[0] + kCounter);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    uint32_t* page = pages[step % 2];
    page[step % kWords] += step;
    fold<<<kBlocks, kWords / kBlocks, 0, stream>>>(page, step);
    CHECK(cudaStreamSynchronize(stream));
    digest.add(page, kWords * sizeof(uint32_t));
    pages[1 - step % 2][step % kWords] ^= page[7];
    steps.report(step, digest);
  }
  over = true;
  counter.join();
  return steps.finish(digest);
}
