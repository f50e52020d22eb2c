// Built with -default-stream per-thread: the default streams of two threads do not wait for each
// other.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "conformance.h"

std::atomic<bool> open_gate{false};
void waitForGate(void*) {
  while (!open_gate) usleep(500);
}
__global__ void store(int* p, int value) { *p = value; }

int main() {
  int* p;
  CHECK(cudaMalloc(&p, 2 * sizeof(int)));
  CHECK(cudaLaunchHostFunc(nullptr, waitForGate, nullptr));  // holds up this thread's stream
  store<<<1, 1>>>(p, 1);
  CHECK(cudaGetLastError());
  std::thread([p] {
    store<<<1, 1>>>(p + 1, 2);
    int value = 0;
    CHECK(cudaMemcpy(&value, p + 1, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT(value == 2);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  EXPECT(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  (void)cudaGetLastError();
  open_gate = true;
  int value = 0;
  CHECK(cudaMemcpy(&value, p, sizeof(value), cudaMemcpyDeviceToHost));
  EXPECT(value == 1);
  return passed();
}
