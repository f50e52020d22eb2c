// Kernels of the kinds that PolyBench and Rodinia are made of, each beside plain loops that do the
// same on one core.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace suite {

inline void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
  exit(1);
}

// An array that both sides have: the plain loops work on `host`, the kernels on `device`.
template <class T>
struct Array {
  std::vector<T> first, host;
  T* device = nullptr;
  template <class F>
  Array(size_t n, F f) : first(n) {
    for (size_t i = 0; i < n; ++i) first[i] = (T)f(i);
    check(cudaMalloc(&device, n * sizeof(T)), "cudaMalloc");
    reset();
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(device); }
  void reset() {
    host = first;
    check(cudaMemcpy(device, first.data(), first.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  // The largest difference between both sides, relative to the largest value.
  double difference() const {
    std::vector<T> got(host.size());
    check(cudaMemcpy(got.data(), device, got.size() * sizeof(T), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    double most = 1e-30, apart = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::fmax(most, std::fabs((double)host[i]));
      apart = std::fmax(apart, std::fabs((double)host[i] - (double)got[i]));
    }
    return apart / most;
  }
};

// Times both sides of one case and keeps the row.
void measure(const char* name, unsigned launches, const std::function<void()>& reset,
             const std::function<void()>& kernels, const std::function<void()>& plain,
             const std::function<double()>& difference);

inline float unit(size_t i) { return (float)(i * 2654435761u % 1000) * 0.001f + 0.001f; }
inline unsigned blocks(size_t n, unsigned size) { return (unsigned)((n + size - 1) / size); }

void linear_algebra();
void factorizations();
void stencils();
void irregular();

}  // namespace suite
