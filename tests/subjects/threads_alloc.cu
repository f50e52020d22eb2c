// Host threads that allocate and free device and pinned memory all the time, each with a population
// of live blocks whose contents change at every step.
#include <pthread.h>

#include <thread>

#include "subject.h"

constexpr int kThreads = 4;
constexpr int kLive = 12;
constexpr int kTurns = 6;  // blocks replaced per step and thread

__global__ void fill(uint32_t* data, int count, uint32_t seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = mix(seed + i);
}

__global__ void advance(uint32_t* data, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = mix(data[i] + 1);
}

struct Live {
  uint32_t* device = nullptr;
  uint32_t* pinned = nullptr;
  int count = 0;
};

struct Worker {
  uint32_t random;
  cudaStream_t stream;
  Live live[kLive];
  Digest digest;

  explicit Worker(int index) : random(mix(index + 1)) { CHECK(cudaStreamCreate(&stream)); }

  uint32_t next() { return random = mix(random + 0x9e3779b9u); }

  void drop(Live* block) {
    CHECK(cudaFree(block->device));
    CHECK(cudaFreeHost(block->pinned));
  }

  void replace(Live* block) {
    drop(block);
    block->count = 64 + next() % 3000;
    CHECK(cudaMalloc(&block->device, block->count * sizeof(uint32_t)));
    CHECK(cudaMallocHost(&block->pinned, block->count * sizeof(uint32_t)));
    fill<<<(block->count + 127) / 128, 128, 0, stream>>>(block->device, block->count, next());
  }

  void step() {
    for (int i = 0; i < kTurns; ++i) replace(&live[next() % kLive]);
    for (Live& block : live) {
      if (block.count == 0) continue;
      advance<<<(block.count + 127) / 128, 128, 0, stream>>>(block.device, block.count);
      CHECK(cudaMemcpyAsync(block.pinned, block.device, block.count * sizeof(uint32_t),
                            cudaMemcpyDeviceToHost, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (Live& block : live) digest.add(block.pinned, block.count * sizeof(uint32_t));
  }

  void finish() {
    for (Live& block : live) drop(&block);
    CHECK(cudaStreamDestroy(stream));
  }
};

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, kThreads + 1);
  Digest digests[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Worker worker(t);
      for (int step = 1; step <= steps.count(); ++step) {
        worker.step();
        digests[t] = worker.digest;
        pthread_barrier_wait(&barrier);  // all have finished the step
        pthread_barrier_wait(&barrier);  // and it has been reported
      }
      worker.finish();
    });
  }
  Digest all;
  for (int step = 1; step <= steps.count(); ++step) {
    pthread_barrier_wait(&barrier);
    for (Digest& digest : digests) all.add(digest.value());
    steps.report(step, all);
    pthread_barrier_wait(&barrier);
  }
  for (std::thread& thread : threads) thread.join();
  return steps.finish(all);
}
