// An inference loop with a CUDA graph: serve STEPS PACE_MS [plain]. A small network of matrix
// products is captured once and replayed for each request; prints "step N value" and, at the end, a
// digest. With `plain` the same without a graph.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                                   \
  do {                                                                \
    cudaError_t error_ = (call);                                      \
    if (error_ != cudaSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

constexpr int kWidth = 128, kLayers = 4;
__global__ void fill(float* p, int n, unsigned salt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = float((i * 2654435761u + salt * 40503u) >> 16 & 1023) / 8192 - 0.0625f;
}
__global__ void layer(const float* weights, const float* in, float* out) {
  int i = threadIdx.x;
  float total = 0;
  for (int k = 0; k < kWidth; ++k) total = fmaf(weights[i * kWidth + k], in[k], total);
  out[i] = total > 0 ? total + 0.01f : 0.5f * total;
}
__global__ void digest(const float* p, unsigned long long* out) {
  unsigned long long sum = 0;
  for (int i = 0; i < kWidth; ++i) sum = sum * 1099511628211ull + __float_as_uint(p[i]);
  *out = *out * 31 + sum;
}

int main(int argc, char** argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 100, pace = argc > 2 ? atoi(argv[2]) : 10;
  bool plain = argc > 3 && !strcmp(argv[3], "plain");
  setvbuf(stdout, nullptr, _IOLBF, 1024);
  float *weights, *x[2];
  unsigned long long *sum, value = 0;
  CHECK(cudaMalloc(&weights, sizeof(float) * kLayers * kWidth * kWidth));
  for (float*& p : x) CHECK(cudaMalloc(&p, sizeof(float) * kWidth));
  CHECK(cudaMalloc(&sum, 8));
  CHECK(cudaMemset(sum, 0, 8));
  fill<<<kLayers * kWidth * kWidth / 256, 256>>>(weights, kLayers * kWidth * kWidth, 1);
  fill<<<1, kWidth>>>(x[0], kWidth, 2);
  CHECK(cudaDeviceSynchronize());
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  auto work = [&] {
    for (int l = 0; l < kLayers; ++l)
      layer<<<1, kWidth, 0, stream>>>(weights + l * kWidth * kWidth, x[l % 2], x[1 - l % 2]);
    digest<<<1, 1, 0, stream>>>(x[0], sum);
  };
  cudaGraph_t graph;
  cudaGraphExec_t exec = nullptr;
  if (!plain) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    work();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  for (int step = 1; step <= steps; ++step) {
    if (exec)
      CHECK(cudaGraphLaunch(exec, stream));
    else
      work();
    CHECK(cudaMemcpyAsync(&value, sum, 8, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("step %d value %016llx\n", step, value);
    usleep(pace * 1000);
  }
  printf("digest %016llx\n", value);
}
