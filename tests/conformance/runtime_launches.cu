// Kernels that launch kernels, as nvcc writes it: recursion, grids with parameters of several
// sizes, streams, the end of the launch, and errors.
#include "conformance.h"

#include <algorithm>
#include <vector>

// Sorts by launching itself for both halves.
__global__ void sort_range(int* values, int first, int last) {
  if (last - first < 2) return;
  const int pivot = values[(first + last) / 2];
  int a = first, b = last - 1;
  while (a <= b) {
    while (values[a] < pivot) ++a;
    while (values[b] > pivot) --b;
    if (a > b) break;
    const int v = values[a];
    values[a++] = values[b];
    values[b--] = v;
  }
  cudaStream_t left, right;
  cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&right, cudaStreamNonBlocking);
  sort_range<<<1, 1, 0, left>>>(values, first, b + 1);
  sort_range<<<1, 1, 0, right>>>(values, a, last);
  cudaStreamDestroy(left);
  cudaStreamDestroy(right);
}

struct Matrix {
  double at[4][4];
};
__global__ void scale(Matrix m, float by, char shift, double* out) {
  const unsigned i = blockIdx.x, j = threadIdx.x;
  out[i * 4 + j] = m.at[i][j] * by + shift;
}
__global__ void scales(double* out) {
  Matrix m;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) m.at[i][j] = i + threadIdx.x * j;
  scale<<<4, 4>>>(m, 2.5f, (char)threadIdx.x, out + threadIdx.x * 16);
}

__global__ void append(int* log, int value) { log[++log[0]] = value; }
__global__ void sum_shared(int* out) {
  extern __shared__ int part[];
  part[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (unsigned k = 0; k < blockDim.x; ++k) sum += part[k];
  *out = sum;
}
__global__ void in_order(int* log, int* sum) {
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 3);
  append<<<1, 1>>>(log, 1);
  sum_shared<<<1, 96, 96 * sizeof(int)>>>(sum);
  append<<<1, 1>>>(log, 2);
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 4);
}
__global__ void cleared(int* values) {
  cudaMemsetAsync(values, 0, 2 * sizeof(int), 0);
  append<<<1, 1>>>(values, 9);
}
__global__ void wrong(int* error) {
  append<<<1, 2048>>>(error, 0);
  error[0] = cudaGetLastError();
  error[1] = cudaGetLastError();
}

int main() {
  std::vector<int> values(3000), want;
  for (size_t k = 0; k < values.size(); ++k) values[k] = (int)((k * 7919) % 3001);
  want = values;
  std::sort(want.begin(), want.end());
  int* at;
  CHECK(cudaMalloc(&at, values.size() * sizeof(int)));
  CHECK(cudaMemcpy(at, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice));
  sort_range<<<1, 1>>>(at, 0, (int)values.size());
  CHECK(cudaMemcpy(values.data(), at, values.size() * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(values == want);

  double *out, got[3 * 16];
  CHECK(cudaMalloc(&out, sizeof got));
  scales<<<1, 3>>>(out);
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) EXPECT(got[t * 16 + i * 4 + j] == (i + t * j) * 2.5 + t);

  int *log, *sum, logged[5], total;
  CHECK(cudaMalloc(&log, sizeof logged));
  CHECK(cudaMalloc(&sum, sizeof total));
  CHECK(cudaMemset(log, 0, sizeof logged));
  in_order<<<1, 1>>>(log, sum);
  CHECK(cudaMemcpy(logged, log, sizeof logged, cudaMemcpyDeviceToHost));
  for (int k = 0; k < 5; ++k) EXPECT(logged[k] == (k == 0 ? 4 : k));
  CHECK(cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost));
  EXPECT(total == 95 * 96 / 2);

  cleared<<<1, 1>>>(log);
  CHECK(cudaMemcpy(logged, log, sizeof logged, cudaMemcpyDeviceToHost));
  EXPECT(logged[0] == 1 && logged[1] == 9 && logged[2] == 2);

  wrong<<<1, 1>>>(log);
  CHECK(cudaMemcpy(logged, log, sizeof logged, cudaMemcpyDeviceToHost));
  EXPECT(logged[0] == cudaErrorInvalidConfiguration && logged[1] == cudaSuccess);
  return passed();
}
