// A loader thread that fills pinned batches while the GPU works on earlier ones, as a data loader
// does: a ring of buffers, a copy stream, a compute stream, and events that say when a buffer may
// be filled again.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "subject.h"

constexpr int kRing = 3;
constexpr int kCount = 4096;

__global__ void consume(const uint32_t* batch, uint32_t* state) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  state[i] = mix(state[i] + batch[i]);
}

struct Ring {
  std::mutex mutex;
  std::condition_variable changed;
  int filled = 0, taken = 0;  // batches so far
  uint32_t* buffers[kRing];
};

void load(Ring* ring, int count) {
  for (int n = 0; n < count; ++n) {
    {
      std::unique_lock<std::mutex> lock(ring->mutex);
      ring->changed.wait(lock, [&] { return n - ring->taken < kRing; });
    }
    uint32_t* buffer = ring->buffers[n % kRing];
    for (int i = 0; i < kCount; ++i) buffer[i] = mix(n * kCount + i);
    std::lock_guard<std::mutex> lock(ring->mutex);
    ++ring->filled;
    ring->changed.notify_all();
  }
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  constexpr size_t kBytes = kCount * sizeof(uint32_t);
  Ring ring;
  uint32_t *batches[kRing], *state;
  cudaEvent_t uploaded[kRing], used[kRing];
  const unsigned flags[kRing] = {cudaHostAllocDefault, cudaHostAllocPortable,
                                 cudaHostAllocWriteCombined};
  for (int i = 0; i < kRing; ++i) {
    CHECK(cudaHostAlloc(&ring.buffers[i], kBytes, flags[i]));
    CHECK(cudaMalloc(&batches[i], kBytes));
    CHECK(cudaEventCreate(&uploaded[i]));
    CHECK(cudaEventCreate(&used[i]));
  }
  CHECK(cudaMalloc(&state, kBytes));
  CHECK(cudaMemset(state, 0, kBytes));
  cudaStream_t copy, compute;
  CHECK(cudaStreamCreate(&copy));
  CHECK(cudaStreamCreate(&compute));
  std::thread loader(load, &ring, steps.count());
  std::vector<uint32_t> expected(kCount), actual(kCount);
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    int n = step - 1, slot = n % kRing;
    {
      std::unique_lock<std::mutex> lock(ring.mutex);
      ring.changed.wait(lock, [&] { return ring.filled > n; });
    }
    CHECK(cudaStreamWaitEvent(copy, used[slot]));
    CHECK(cudaMemcpyAsync(batches[slot], ring.buffers[slot], kBytes, cudaMemcpyHostToDevice, copy));
    CHECK(cudaEventRecord(uploaded[slot], copy));
    CHECK(cudaStreamWaitEvent(compute, uploaded[slot]));
    consume<<<kCount / 256, 256, 0, compute>>>(batches[slot], state);
    CHECK(cudaEventRecord(used[slot], compute));
    CHECK(cudaEventSynchronize(uploaded[slot]));
    {
      std::lock_guard<std::mutex> lock(ring.mutex);
      ++ring.taken;
      ring.changed.notify_all();
    }
    for (int i = 0; i < kCount; ++i) expected[i] = mix(expected[i] + mix(n * kCount + i));
    CHECK(cudaMemcpyAsync(actual.data(), state, kBytes, cudaMemcpyDeviceToHost, compute));
    CHECK(cudaStreamSynchronize(compute));
    EXPECT(actual == expected);
    digest.add(actual);
    steps.report(step, digest);
  }
  loader.join();
  for (int i = 0; i < kRing; ++i) {
    CHECK(cudaFreeHost(ring.buffers[i]));
    CHECK(cudaFree(batches[i]));
    CHECK(cudaEventDestroy(uploaded[i]));
    CHECK(cudaEventDestroy(used[i]));
  }
  CHECK(cudaFree(state));
  CHECK(cudaStreamDestroy(copy));
  CHECK(cudaStreamDestroy(compute));
  return steps.finish(digest);
}
