// A program that resets its device every few steps and begins anew there: context after context,
// with the same module and its variable.
#include "subject.h"

constexpr int kCount = 16;
__device__ int sums[kCount];

__global__ void advance(int* values, int step) {
  int i = threadIdx.x;
  sums[i] += step;
  values[i] = mix(values[i] + sums[i]);
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  Digest digest;
  std::vector<int> host(kCount, 1);
  int* values = nullptr;
  for (int step = 1; step <= steps.count(); ++step) {
    if (step % 8 == 1) {
      if (values) CHECK(cudaDeviceReset());
      CHECK(cudaMalloc(&values, kCount * sizeof(int)));
      CHECK(cudaMemcpy(values, host.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
    }
    advance<<<1, kCount>>>(values, step);
    CHECK(cudaMemcpy(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    digest.add(host);
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
