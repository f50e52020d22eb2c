// The work that ptx_speed measures, once as kernels and once as plain loops: the same functions.
#include "work.h"

extern "C" __global__ void axpy(float a, const float* x, float* y, unsigned n) {
  const unsigned step = gridDim.x * blockDim.x;
#pragma unroll 1
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void hash32(unsigned* out, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = i;
#pragma unroll 1
  for (unsigned k = 0; k < rounds; ++k) h = mix32(h, k);
  out[i] = h;
}

// One chunk of 64 KiB per warp; each lane takes two words of a stripe, as XXH3 does.
extern "C" __global__ void hash64(const ulonglong2* in, unsigned long long* out, unsigned stripes) {
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
  const ulonglong2* p = in + (size_t)warp * stripes * 32 + lane;
  unsigned long long a = lane * 0x9e3779b185ebca87ull, b = ~a;
#pragma unroll 1
  for (unsigned k = 0; k < stripes; ++k) {
    const ulonglong2 v = p[(size_t)k * 32];
    step64(&a, &b, v.x, v.y, k);
  }
  out[warp * 32 + lane] = a ^ b;
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, unsigned n) {
  __shared__ float ta[16][16], tb[16][16];
  const unsigned x = threadIdx.x & 15, y = threadIdx.x >> 4;
  const unsigned row = (blockIdx.x / (n / 16)) * 16 + y, column = (blockIdx.x % (n / 16)) * 16 + x;
  float sum = 0;
#pragma unroll 1
  for (unsigned k = 0; k < n; k += 16) {
    ta[y][x] = a[row * n + k + x];
    tb[y][x] = b[(k + y) * n + column];
    __syncthreads();
#pragma unroll
    for (unsigned j = 0; j < 16; ++j) sum += ta[y][j] * tb[j][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

extern "C" __global__ void reduce(const float* in, float* out, unsigned n) {
  __shared__ float part[8];
  float sum = 0;
  const unsigned step = gridDim.x * blockDim.x;
#pragma unroll 1
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) sum += in[i];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < 8; ++k) sum += part[k];
    atomicAdd(out, sum);
  }
}

extern "C" __global__ void transcendental(float* out, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = (float)(i & 1023) * 0.001f;
#pragma unroll 1
  for (unsigned k = 0; k < rounds; ++k) x = __sinf(x) + __expf(-x) * __logf(x + 2.0f);
  out[i] = x;
}

extern "C" __global__ void atomics(const unsigned* in, unsigned* bins, unsigned n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  const unsigned step = gridDim.x * blockDim.x;
#pragma unroll 1
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    atomicAdd(&local[in[i] & 255], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

extern "C" __global__ void divergent(unsigned* out, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned total = 0;
  for (unsigned k = 0; k < rounds; ++k) total += collatz(i * rounds + k + 1);
  out[i] = total;
}

extern "C" __global__ void nothing(unsigned* out) {
  if (threadIdx.x == 0 && out != nullptr) out[blockIdx.x] = 1;
}
