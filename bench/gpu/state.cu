// A program with a lot of device memory: state MEBIBYTES STEPS PACE_MS DIRTY_PERCENT [times]. Half
// of the memory is noise, half compresses well. Each step changes part of it; prints "step N" and,
// at the end, a digest of all of it. With `times`, standard error gets "at MONOTONIC_NS step
// MICROSECONDS us" for each.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#define CHECK(call)                                                   \
  do {                                                                \
    cudaError_t error_ = (call);                                      \
    if (error_ != cudaSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

using Word = unsigned long long;
__device__ Word mix(Word x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
__global__ void fill(Word* p, size_t words, Word salt) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words;
       i += size_t(gridDim.x) * blockDim.x)
    p[i] = (i >> 13) & 1 ? i & 255 : mix(i + salt);
}
// Whole 64 KiB pieces change, spread evenly.
__global__ void touch(Word* p, size_t words, Word step, unsigned percent) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words;
       i += size_t(gridDim.x) * blockDim.x)
    if (mix((i >> 13) + step * 1000003) % 100 < percent) p[i] += step;
}
__global__ void digest(const Word* p, size_t words, Word* out) {
  Word sum = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words;
       i += size_t(gridDim.x) * blockDim.x)
    sum += mix(p[i] + i);
  atomicAdd(out, sum);
}

int main(int argc, char** argv) {
  size_t bytes = (argc > 1 ? atoll(argv[1]) : 64) << 20;
  int steps = argc > 2 ? atoi(argv[2]) : 40, pace = argc > 3 ? atoi(argv[3]) : 20;
  bool times = argc > 5 && !strcmp(argv[5], "times");
  unsigned percent = argc > 4 ? atoi(argv[4]) : 1;
  setvbuf(stdout, nullptr, _IOLBF, 1024);
  std::vector<Word*> parts;
  const size_t part = size_t(256) << 20;
  Word* out;
  CHECK(cudaMalloc(&out, 8));
  CHECK(cudaMemset(out, 0, 8));
  for (size_t at = 0; at < bytes; at += part) {
    size_t n = bytes - at < part ? bytes - at : part;
    Word* p;
    CHECK(cudaMalloc(&p, n));
    fill<<<64, 128>>>(p, n / 8, at);
    parts.push_back(p);
  }
  CHECK(cudaDeviceSynchronize());
  auto now = [] {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<long long>(t.tv_sec) * 1000000000 + t.tv_nsec;
  };
  for (int step = 1; step <= steps; ++step) {
    long long begin = now();
    for (size_t i = 0; i < parts.size(); ++i) {
      size_t n = bytes - i * part < part ? bytes - i * part : part;
      touch<<<64, 128>>>(parts[i], n / 8, step, percent);
    }
    CHECK(cudaDeviceSynchronize());
    if (times) fprintf(stderr, "at %lld step %lld us\n", now(), (now() - begin) / 1000);
    printf("step %d\n", step);
    usleep(pace * 1000);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t n = bytes - i * part < part ? bytes - i * part : part;
    digest<<<64, 128>>>(parts[i], n / 8, out);
  }
  Word sum = 0;
  CHECK(cudaMemcpy(&sum, out, 8, cudaMemcpyDeviceToHost));
  printf("digest %016llx\n", sum);
}
