// Many threads whose very first calls meet: initialisation, lazy loading and launches from
// everywhere at once.
#include <thread>

#include "conformance.h"

template <int kVariant>
__global__ void variant(int* out) {
  atomicAdd(out, kVariant);
}

template <int kVariant>
void launch(int* out) {
  variant<kVariant><<<1, 32>>>(out);
  CHECK(cudaGetLastError());
}

int main() {
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      int* out;
      CHECK(cudaMalloc(&out, sizeof(int)));
      CHECK(cudaMemset(out, 0, sizeof(int)));
      for (int i = 0; i < 10; ++i) {
        launch<1>(out);
        launch<10>(out);
        launch<100>(out);
      }
      int value = 0;
      CHECK(cudaMemcpy(&value, out, sizeof(value), cudaMemcpyDeviceToHost));
      EXPECT(value == 10 * 32 * 111);
      CHECK(cudaFree(out));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return passed();
}
