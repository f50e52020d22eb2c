// Built with -default-stream per-thread: several threads use "the" default stream, which is a
// different one in each, and the legacy one by name.
#include <pthread.h>

#include <thread>

#include "subject.h"

constexpr int kThreads = 3;
constexpr int kCount = 1024;

__global__ void advance(uint32_t* data, uint32_t salt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = mix(data[i] + salt);
}

void work(int thread, int steps, pthread_barrier_t* barrier, Digest* digest) {
  constexpr size_t kBytes = kCount * sizeof(uint32_t);
  uint32_t *data, *pinned;
  CHECK(cudaMalloc(&data, kBytes));
  CHECK(cudaMallocHost(&pinned, kBytes));
  CHECK(cudaMemset(data, thread, kBytes));
  std::vector<uint32_t> expected(kCount, thread * 0x01010101u);
  for (int step = 1; step <= steps; ++step) {
    for (int i = 0; i < 4; ++i) advance<<<kCount / 128, 128>>>(data, step + i);
    CHECK(cudaMemcpyAsync(pinned, data, kBytes, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(nullptr));
    for (uint32_t& x : expected) {
      for (int i = 0; i < 4; ++i) x = mix(x + step + i);
    }
    for (int i = 0; i < kCount; ++i) EXPECT(pinned[i] == expected[i]);
    // The legacy stream waits for ours and ours for it.
    advance<<<kCount / 128, 128, 0, cudaStreamLegacy>>>(data, thread);
    CHECK(cudaMemcpy(pinned, data, kBytes, cudaMemcpyDeviceToHost));
    for (uint32_t& x : expected) x = mix(x + thread);
    for (int i = 0; i < kCount; ++i) EXPECT(pinned[i] == expected[i]);
    digest->add(pinned, kBytes);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
  }
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(data));
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, kThreads + 1);
  Digest digests[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back(work, t, steps.count(), &barrier, &digests[t]);
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
