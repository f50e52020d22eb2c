// Expandable segments as frameworks have them: a large reservation for each of several streams and
// threads, which grows at its end page by page while kernels work in what is there, shrinks again,
// has holes in the middle, and shares pages with another segment that maps them a second time;
// pools of several kinds beside it, trimmed while others of their memory are in use.
#include <cuda.h>

#include <thread>

#include "subject.h"

constexpr int kThreads = 4, kMostPages = 6;
CUmemAllocationProp properties = {};
size_t page_bytes;

__global__ void work(uint32_t* data, size_t words, size_t stride, uint32_t seed) {
  const size_t i = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * stride;
  if (i < words) data[i] = mix(data[i] + seed + static_cast<uint32_t>(i));
}

class Segment {
 public:
  void start(int number) {
    number_ = number;
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cuMemAddressReserve(&base_, 64 * page_bytes, 0, 0, 0));
    CHECK(cuMemAddressReserve(&alias_, page_bytes, 0, 0, 0));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&pool_, &props));
    uint64_t threshold = number % 2 ? ~0ull : 0;
    CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
    random_ = mix(number + 77);
  }

  uint64_t step() {
    for (int i = 0; i < 3; ++i) {
      random_ = mix(random_ + 1);
      if (pages_.empty() || (pages_.size() < kMostPages && random_ % 3)) {
        grow();
      } else {
        shrink();
      }
      use_alias();
      touch();
      stream_ordered();
    }
    CHECK(cudaStreamSynchronize(stream_));
    Digest digest;
    uint32_t word;
    for (size_t page = 0; page < pages_.size(); ++page)
      for (size_t third = 0; third < 3; ++third) {
        const size_t at = third == 2 ? page_bytes - 4096 : third * page_bytes / 2;
        CHECK(cuMemcpyDtoH(&word, base_ + page * page_bytes + at, sizeof word));
        digest.add(word);
      }
    if (random_ % 4 == 0) CHECK(cudaMemPoolTrimTo(pool_, random_ % 2 ? 0 : 1 << 20));
    return digest.value();
  }

 private:
  void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemMap(at, page_bytes, 0, handle, 0));
    CHECK(cuMemSetAccess(at, page_bytes, &access, 1));
  }
  void grow() {
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, page_bytes, &properties, 0));
    const CUdeviceptr at = base_ + pages_.size() * page_bytes;
    map(at, handle);
    CHECK(cuMemsetD32Async(at, random_, page_bytes / 4, reinterpret_cast<CUstream>(stream_)));
    pages_.push_back(handle);
  }
  void shrink() {
    CHECK(cudaStreamSynchronize(stream_));
    const size_t last = pages_.size() - 1;
    if (aliased_ == static_cast<int>(last)) drop_alias();
    CHECK(cuMemUnmap(base_ + last * page_bytes, page_bytes));
    CHECK(cuMemRelease(pages_[last]));
    pages_.pop_back();
  }
  void drop_alias() {
    CHECK(cudaStreamSynchronize(stream_));
    CHECK(cuMemUnmap(alias_, page_bytes));
    aliased_ = -1;
  }
  void use_alias() {
    if (pages_.empty()) return;
    if (aliased_ >= 0 && random_ % 5 == 0) drop_alias();
    if (aliased_ < 0) map(alias_, pages_[aliased_ = static_cast<int>(random_ % pages_.size())]);
    work<<<4, 64, 0, stream_>>>(reinterpret_cast<uint32_t*>(alias_), page_bytes / 4,
                                page_bytes / 4 / 256, random_);
  }
  void touch() {
    const size_t words = pages_.size() * page_bytes / 4;
    if (words)
      work<<<8, 64, 0, stream_>>>(reinterpret_cast<uint32_t*>(base_), words, words / 512,
                                  random_ + number_);
  }
  void stream_ordered() {
    void* fresh;
    const size_t bytes = 4096 << random_ % 6;
    CHECK(cudaMallocFromPoolAsync(&fresh, bytes, pool_, stream_));
    CHECK(cudaMemsetAsync(fresh, number_, bytes, stream_));
    if (held_) {
      CHECK(cudaMemcpyAsync(fresh, held_, 1024, cudaMemcpyDeviceToDevice, stream_));
      CHECK(cudaFreeAsync(held_, stream_));
    }
    held_ = fresh;
    if (!pages_.empty())
      CHECK(cuMemcpyDtoDAsync(base_ + page_bytes / 2, reinterpret_cast<CUdeviceptr>(held_), 1024,
                              reinterpret_cast<CUstream>(stream_)));
  }

  int number_ = 0, aliased_ = -1;
  uint32_t random_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  void* held_ = nullptr;
  CUdeviceptr base_ = 0, alias_ = 0;
  std::vector<CUmemGenericAllocationHandle> pages_;
};

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CHECK(cuMemGetAllocationGranularity(&page_bytes, &properties,
                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  Segment segments[kThreads];
  for (int i = 0; i < kThreads; ++i) segments[i].start(i);
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    uint64_t values[kThreads];
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        CHECK(cudaSetDevice(0));
        values[i] = segments[i].step();
      });
    for (std::thread& t : threads) t.join();
    for (uint64_t v : values) digest.add(v);
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
