// The machine's own limits: rates MEBIBYTES. Prints one JSON object: GB/s of device-to-device
// copies (bytes counted once), device to host and back with pinned and pageable memory, and of
// reading all of it in a kernel (what a hash can reach at best).
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                   \
  do {                                                                \
    cudaError_t error_ = (call);                                      \
    if (error_ != cudaSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

using Word = unsigned long long;
__global__ void sum(const ulonglong2* p, size_t n, Word* out) {
  Word total = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += size_t(gridDim.x) * blockDim.x)
    total += p[i].x ^ p[i].y;
  if (total == 0x1234567) *out = total;  // never taken away
}

template <typename F>
static double gigabytes_per_second(size_t bytes, F body) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  body();  // warm
  CHECK(cudaDeviceSynchronize());
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    float ms = 0;
    CHECK(cudaEventRecord(begin));
    body();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    double rate = ms > 0 ? bytes / (ms * 1e6) : 0;
    if (rate > best) best = rate;
  }
  return best;
}

int main(int argc, char** argv) {
  size_t bytes = (argc > 1 ? atoll(argv[1]) : 64) << 20;
  char *a, *b, *pinned, *pageable = static_cast<char*>(malloc(bytes));
  Word* out;
  CHECK(cudaMalloc(&a, bytes));
  CHECK(cudaMalloc(&b, bytes));
  CHECK(cudaMalloc(&out, 8));
  CHECK(cudaMallocHost(&pinned, bytes));
  CHECK(cudaMemset(a, 1, bytes));
  memset(pageable, 2, bytes);
  memset(pinned, 3, bytes);
  double d2d = gigabytes_per_second(
      bytes, [&] { CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice)); });
  double d2h = gigabytes_per_second(
      bytes, [&] { CHECK(cudaMemcpyAsync(pinned, a, bytes, cudaMemcpyDeviceToHost)); });
  double h2d = gigabytes_per_second(
      bytes, [&] { CHECK(cudaMemcpyAsync(a, pinned, bytes, cudaMemcpyHostToDevice)); });
  double d2h_pageable = gigabytes_per_second(
      bytes, [&] { CHECK(cudaMemcpy(pageable, a, bytes, cudaMemcpyDeviceToHost)); });
  double read = gigabytes_per_second(
      bytes, [&] { sum<<<1024, 256>>>(reinterpret_cast<const ulonglong2*>(a), bytes / 16, out); });
  CHECK(cudaGetLastError());
  printf(
      "{\"mebibytes\": %zu, \"device_to_device\": %.2f, \"device_to_host\": %.2f, "
      "\"host_to_device\": %.2f, "
      "\"device_to_host_pageable\": %.2f, \"kernel_read\": %.2f}\n",
      bytes >> 20, d2d, d2h, h2d, d2h_pageable, read);
}
