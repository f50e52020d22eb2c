// Relocatable device code (-rdc=true: the image is several containers, linked when they are
// loaded), and a __managed__ variable that both sides write.
#include "subject.h"

constexpr int kCount = 512;

__device__ uint32_t state[kCount] = {1, 2, 3};
__managed__ uint32_t shared_state[kCount];
__managed__ uint32_t key = 17;
__constant__ uint32_t salt = 5;

extern __device__ uint32_t stir(uint32_t a, uint32_t b);
__device__ __noinline__ uint32_t stir(uint32_t a, uint32_t b) { return mix(a + mix(b ^ salt)); }

__global__ void advance() {
  int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  state[i] = stir(state[i], shared_state[i] + key);
  shared_state[i] += state[i];
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  EXPECT(key == 17 && shared_state[3] == 0);
  std::vector<uint32_t> expected(kCount), both(kCount), actual(kCount);
  expected[0] = 1;
  expected[1] = 2;
  expected[2] = 3;
  Digest digest;
  uint32_t next_key = 17;
  for (int step = 1; step <= steps.count(); ++step) {
    advance<<<kCount / 128, 128>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) {
      expected[i] = mix(expected[i] + mix((both[i] + next_key) ^ 5));
      both[i] += expected[i];
      EXPECT(shared_state[i] == both[i]);
      shared_state[i] = both[i] = mix(both[i] + static_cast<uint32_t>(step));
    }
    key = next_key = mix(key);
    CHECK(cudaMemcpyFromSymbol(actual.data(), state, sizeof(state)));
    EXPECT(actual == expected);
    digest.add(actual);
    digest.add(both);
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
