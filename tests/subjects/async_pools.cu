// Stream-ordered allocation: from the default pool and from one of its own with a release
// threshold, freed on another stream than allocated on, with some blocks alive from step to step.
#include "subject.h"

constexpr int kLive = 6;

__global__ void fill(uint32_t* data, int count, uint32_t seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = mix(seed + i);
}

__global__ void fold(const uint32_t* from, uint32_t* into, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) into[i % 256] = mix(into[i % 256] + from[i]);
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  cudaStream_t streams[2];
  cudaEvent_t events[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
  }
  cudaMemPool_t pool;
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  CHECK(cudaMemPoolCreate(&pool, &props));
  uint64_t threshold = 1 << 20;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));

  uint32_t* result;
  CHECK(cudaMallocAsync(&result, 256 * sizeof(uint32_t), streams[0]));
  CHECK(cudaMemsetAsync(result, 0, 256 * sizeof(uint32_t), streams[0]));
  struct Live {
    uint32_t* data;
    int count;
  } live[kLive] = {};
  uint32_t random = 7;
  Digest digest;
  std::vector<uint32_t> host(256);
  for (int step = 1; step <= steps.count(); ++step) {
    for (Live& block : live) {
      random = mix(random + 1);
      bool from_pool = random % 2;
      if (block.data != nullptr) {  // freed on the other stream, after the last use
        CHECK(cudaEventRecord(events[0], streams[0]));
        CHECK(cudaStreamWaitEvent(streams[1], events[0]));
        CHECK(cudaFreeAsync(block.data, streams[1]));
        CHECK(cudaEventRecord(events[1], streams[1]));
        CHECK(cudaStreamWaitEvent(streams[0], events[1]));
      }
      block.count = 256 * (1 + random % 5);
      void** out = reinterpret_cast<void**>(&block.data);
      size_t bytes = block.count * sizeof(uint32_t);
      if (from_pool) {
        CHECK(cudaMallocFromPoolAsync(out, bytes, pool, streams[0]));
      } else {
        CHECK(cudaMallocAsync(out, bytes, streams[0]));
      }
      fill<<<block.count / 256, 256, 0, streams[0]>>>(block.data, block.count, random);
      // One block of 256 threads per launch: no two threads share a place in the result.
      for (int i = 0; i < block.count; i += 256) {
        fold<<<1, 256, 0, streams[0]>>>(block.data + i, result, 256);
      }
    }
    CHECK(cudaMemcpyAsync(host.data(), result, 256 * sizeof(uint32_t), cudaMemcpyDeviceToHost,
                          streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    digest.add(host);
    if (step % 8 == 0) CHECK(cudaMemPoolTrimTo(pool, 0));
    steps.report(step, digest);
  }
  for (Live& block : live) {
    if (block.data != nullptr) CHECK(cudaFreeAsync(block.data, streams[0]));
  }
  CHECK(cudaFreeAsync(result, streams[0]));
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaStreamSynchronize(streams[i]));
    CHECK(cudaStreamDestroy(streams[i]));
    CHECK(cudaEventDestroy(events[i]));
  }
  CHECK(cudaMemPoolDestroy(pool));
  return steps.finish(digest);
}
