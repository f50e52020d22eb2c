// Half precision and bfloat16: conversions and arithmetic against single precision rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "conformance.h"

template <typename T>
__device__ T round1(float x);
template <>
__device__ __half round1<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 round1<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
__device__ float widen(__half x) { return __half2float(x); }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

// Sums, products and comparisons in T, against the same in float rounded to T. For + and * of two T
// values float holds the exact result or rounds innocuously (Figueroa), so the bits must agree.
template <typename T>
__global__ void run(int* wrong) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float fa = (static_cast<float>(scramble(i)) / 4294967296.f - 0.5f) * 64;
  float fb = (static_cast<float>(scramble(i + 99999)) / 4294967296.f - 0.5f) * 4;
  T a = round1<T>(fa), b = round1<T>(fb);
  float wa = widen(a), wb = widen(b);
  bool good = widen(a + b) == widen(round1<T>(wa + wb)) &&
              widen(a - b) == widen(round1<T>(wa - wb)) &&
              widen(a * b) == widen(round1<T>(wa * wb)) && (a < b) == (wa < wb) &&
              widen(-a) == -wa && fabsf(wa - fa) <= fabsf(fa) / 128 + 1e-7f;
  if (!good) atomicAdd(wrong, 1);
}

__global__ void pairs(__half2* out) {
  int i = threadIdx.x;
  __half2 a = __floats2half2_rn(i, i * 0.5f), b = __floats2half2_rn(2.f, -1.f);
  out[i] = __hfma2(a, b, __floats2half2_rn(1.f, 0.25f));
}

int main() {
  DeviceVector<int> wrong(1);
  run<__half><<<32, 64>>>(wrong.get());
  CHECK(cudaGetLastError());
  EXPECT(wrong.copy()[0] == 0);
  run<__nv_bfloat16><<<32, 64>>>(wrong.get());
  CHECK(cudaGetLastError());
  EXPECT(wrong.copy()[0] == 0);
  DeviceVector<__half2> out(32);
  pairs<<<1, 32>>>(out.get());
  auto got = out.copy();
  for (int i = 0; i < 32; ++i) {
    EXPECT(__half2float(got[i].x) == i * 2.f + 1.f);
    EXPECT(__half2float(got[i].y) == i * -0.5f + 0.25f);
  }
  return passed();
}
