// What the conformance programs have in common: each checks one family of behaviour and ends with
// the word PASSED, or says on standard error what was wrong and exits with 1. They make sense on a
// real GPU as well.
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    cudaError_t error_ = (call);                                                               \
    if (error_ != cudaSuccess) {                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_)); \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

// The call fails with exactly this error.
#define EXPECT_ERROR(call, wanted)                                                \
  do {                                                                            \
    cudaError_t error_ = (call);                                                  \
    if (error_ != (wanted)) {                                                     \
      fprintf(stderr, "%s:%d: %s: %s instead of %s\n", __FILE__, __LINE__, #call, \
              cudaGetErrorName(error_), cudaGetErrorName(wanted));                \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

inline int passed() {
  printf("PASSED\n");
  return 0;
}

// Device memory that frees itself and copies to and from vectors.
template <typename T>
class DeviceVector {
 public:
  explicit DeviceVector(size_t count) : count_(count) {
    CHECK(cudaMalloc(&data_, count * sizeof(T)));
    CHECK(cudaMemset(data_, 0, count * sizeof(T)));
  }
  explicit DeviceVector(const std::vector<T>& from) : count_(from.size()) {
    CHECK(cudaMalloc(&data_, count_ * sizeof(T)));
    CHECK(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceVector() { cudaFree(data_); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  T* get() const { return data_; }
  std::vector<T> copy() const {
    std::vector<T> out(count_);
    CHECK(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

__host__ __device__ inline uint32_t scramble(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
__host__ __device__ inline uint64_t scramble64(uint64_t i) {
  return static_cast<uint64_t>(scramble(static_cast<uint32_t>(i))) << 32 |
         scramble(static_cast<uint32_t>(i) + 0x9e3779b9u);
}
