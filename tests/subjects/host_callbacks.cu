// Host functions in the middle of a stream: the GPU computes, a callback on the CPU changes the
// result, the GPU goes on with it. The callback takes a mutex that the main thread takes around its
// calls, as real programs do.
#include <pthread.h>

#include "subject.h"

constexpr int kCount = 1024;
constexpr int kRounds = 5;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct Work {
  uint32_t* pinned;
  uint32_t calls = 0;
  uint64_t sum = 0;
};

__global__ void advance(uint32_t* data) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = mix(data[i] + i);
}

void foldOnHost(Work* work) {
  pthread_mutex_lock(&mutex);
  ++work->calls;
  for (int i = 0; i < kCount; ++i) {
    work->sum += work->pinned[i];
    work->pinned[i] ^= work->calls;
  }
  pthread_mutex_unlock(&mutex);
}

void hostFunction(void* work) { foldOnHost(static_cast<Work*>(work)); }

void streamCallback(cudaStream_t, cudaError_t status, void* work) {
  CHECK(status);
  foldOnHost(static_cast<Work*>(work));
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  constexpr size_t kBytes = kCount * sizeof(uint32_t);
  Work work;
  uint32_t* device;
  cudaStream_t stream;
  CHECK(cudaMallocHost(&work.pinned, kBytes));
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMemset(device, 1, kBytes));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    for (int round = 0; round < kRounds; ++round) {
      pthread_mutex_lock(&mutex);
      uint32_t called = work.calls;  // whatever it is: only the lock matters here
      advance<<<kCount / 128, 128, 0, stream>>>(device);
      pthread_mutex_unlock(&mutex);
      EXPECT(called <= static_cast<uint32_t>(step * kRounds));
      CHECK(cudaMemcpyAsync(work.pinned, device, kBytes, cudaMemcpyDeviceToHost, stream));
      if (round % 2 == 0) {
        CHECK(cudaLaunchHostFunc(stream, hostFunction, &work));
      } else {
        CHECK(cudaStreamAddCallback(stream, streamCallback, &work, 0));
      }
      CHECK(cudaMemcpyAsync(device, work.pinned, kBytes, cudaMemcpyHostToDevice, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(work.calls == static_cast<uint32_t>(step * kRounds));
    digest.add(work.pinned, kBytes);
    digest.add(work.sum);
    steps.report(step, digest);
  }
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(work.pinned));
  return steps.finish(digest);
}
