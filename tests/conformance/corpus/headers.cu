// The headers that kernels use directly: cooperative groups, libcu++, curand, half, bfloat and fp8
// types, math functions.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#if __has_include(<curand_kernel.h>)
#include <curand_kernel.h>
#define HAVE_CURAND
#else
#pragma message("curand_kernel.h is not installed: its kernels are left out")
#endif

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/tuple>

namespace cg = cooperative_groups;

__global__ void groups(int* data, float* reals) {
  auto grid = cg::this_grid();
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  auto warp = cg::tiled_partition<32>(block);
  int x = data[grid.thread_rank()];
  x = cg::reduce(tile, x, cg::plus<int>());
  x += cg::reduce(warp, x, cg::bit_xor<int>());
  x += cg::inclusive_scan(warp, x);
  x += cg::exclusive_scan(tile, x, cg::less<int>());
  float f = cg::reduce(warp, static_cast<float>(x), cg::greater<float>());
  x += warp.shfl_xor(x, 3) + tile.shfl_down(x, 1) + warp.match_any(x) + warp.ballot(x > 3);
  if (x & 1) {
    auto some = cg::coalesced_threads();
    x += cg::reduce(some, x, cg::plus<int>()) + some.size() + some.shfl(x, 0);
    auto parts = cg::labeled_partition(some, x & 2);
    x += parts.thread_rank();
    cg::invoke_one(some, [&] { atomicAdd(data, 1); });
  }
  __shared__ int buffer[256];
  cg::memcpy_async(block, buffer, data, sizeof buffer);
  cg::wait(block);
  auto binary = cg::binary_partition(warp, x & 4);
  x += binary.size();
  grid.sync();
  data[grid.thread_rank()] = x + buffer[threadIdx.x & 255];
  reals[grid.thread_rank()] = f;
}

__global__ void library(int* data, unsigned long long* longs) {
  cuda::atomic_ref<int, cuda::thread_scope_device> device(data[0]);
  cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> system(longs[0]);
  device.fetch_add(1, cuda::memory_order_relaxed);
  device.fetch_max(7, cuda::memory_order_acq_rel);
  int expected = 3;
  device.compare_exchange_strong(expected, 4);
  system.fetch_xor(5);
  system.store(system.load(cuda::memory_order_acquire) + 1, cuda::memory_order_release);
  cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_block);
  cuda::atomic_ref<float, cuda::thread_scope_block> real(*reinterpret_cast<float*>(data + 1));
  real.fetch_add(1.0f);
  cuda::atomic_ref<unsigned char, cuda::thread_scope_device> byte(
      *reinterpret_cast<unsigned char*>(data + 2));
  byte.fetch_add(1);
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ cuda::binary_semaphore<cuda::thread_scope_block> semaphore;
  __shared__ alignas(64) char room[sizeof(cuda::latch<cuda::thread_scope_block>)];
  auto& latch = *reinterpret_cast<cuda::latch<cuda::thread_scope_block>*>(room);
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    new (&semaphore) cuda::binary_semaphore<cuda::thread_scope_block>(1);
    new (&latch) cuda::latch<cuda::thread_scope_block>(blockDim.x);
  }
  __syncthreads();
  barrier.arrive_and_wait();
  auto token = barrier.arrive();
  semaphore.acquire();
  data[3] += 1;
  semaphore.release();
  barrier.wait(std::move(token));
  latch.arrive_and_wait();
  __shared__ int buffer[128];
  cuda::memcpy_async(buffer + threadIdx.x, data + threadIdx.x, sizeof(int), barrier);
  barrier.arrive_and_wait();
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state);
  pipe.producer_acquire();
  cuda::memcpy_async(cooperative_groups::this_thread_block(), buffer, data,
                     cuda::aligned_size_t<16>(256), pipe);
  pipe.producer_commit();
  pipe.consumer_wait();
  data[threadIdx.x] = buffer[threadIdx.x];
  pipe.consumer_release();
  __pipeline_memcpy_async(buffer + threadIdx.x, data + threadIdx.x, 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  cuda::std::complex<float> z(data[0], data[1]);
  z = z * z + cuda::std::complex<float>(1, 2);
  z /= cuda::std::complex<float>(2, 3);
  data[4] = static_cast<int>(cuda::std::abs(z));
}

#ifdef HAVE_CURAND
__global__ void random(float* reals, double* doubles, unsigned* words) {
  curandStatePhilox4_32_10_t philox;
  curandStateXORWOW_t xorwow;
  curandStateMRG32k3a_t mrg;
  curandStateSobol32_t sobol;
  unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
  curand_init(1, id, 0, &philox);
  curand_init(2, id, 5, &xorwow);
  curand_init(3, id, 0, &mrg);
  unsigned directions[32];
  for (int k = 0; k < 32; ++k) directions[k] = 1u << (31 - k);
  curand_init(directions, id, &sobol);
  float4 four = curand_normal4(&philox);
  reals[id] = four.x + curand_uniform(&xorwow) + curand_log_normal(&xorwow, 0.0f, 1.0f);
  doubles[id] = curand_uniform_double(&mrg) + curand_normal_double(&xorwow);
  words[id] = curand(&sobol) + curand_poisson(&philox, 3.5) + curand(&xorwow);
}
#endif

__global__ void halves(__half* h, __nv_bfloat16* b, float* f, unsigned char* bytes) {
  unsigned id = threadIdx.x;
  __half2 x = __floats2half2_rn(f[id], f[id + 1]), y = __halves2half2(h[id], h[id + 1]);
  x = __hfma2(x, y, __hadd2_sat(x, y));
  x = h2exp2(__hmul2(x, h2rsqrt(__habs2(y))));
  x = __hmax2_nan(x, h2sin(y));
  x = __hfma2_relu(x, y, h2tanh(x));
  h[id] = __hdiv(__low2half(x), hlog(__high2half(x)));
  h[id] = __hadd(h[id], __ushort_as_half(__half_as_ushort(hrint(h[id + 2]))));
  if (__hbne2(x, y) || __hltu(h[id], h[id + 1])) h[id] = atomicAdd(h + 3, h[id]);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  __nv_bfloat162 p = __floats2bfloat162_rn(f[id], f[id + 1]);
  p = __hfma2(p, p, __hmin2(p, h2sqrt(p)));
  p = __hmul2(p, h2cos(p));
  b[id] = __hsub(__low2bfloat16(p), hexp(__high2bfloat16(p)));
  b[id] = atomicAdd(b + 5, b[id]);
#endif
  f[id] = __half2float(h[id]) + __bfloat162float(b[id]) + __half2int_rz(h[id]) +
          static_cast<float>(__half2ll_rn(h[id])) + __bfloat162uint_ru(b[id]);
  __nv_fp8_e4m3 e4(f[id]);
  __nv_fp8_e5m2 e5(f[id]);
  __nv_fp8x4_e4m3 e44(make_float4(f[id], f[id + 1], f[id + 2], f[id + 3]));
  float4 wide = static_cast<float4>(e44);
  __nv_fp8_e8m0 e8(f[id]);
  __nv_fp6_e2m3 e23(f[id]);
  __nv_fp4_e2m1 e21(f[id]);
  bytes[id] = e4.__x + e5.__x + e8.__x + e23.__x + e21.__x;
  f[id] = static_cast<float>(e4) + static_cast<float>(e5) + wide.x + wide.w +
          static_cast<float>(e8) + static_cast<float>(e23) + static_cast<float>(e21);
  __nv_fp8x2_e5m2 pair(x);
  h[id + 4] = __low2half(static_cast<__half2>(pair));
}

template <class T>
__device__ T everything(T a, T b) {
  T r = sin(a) + cos(b) + tan(a) + exp(a) + log(b) + pow(a, b) + sqrt(a) + cbrt(b) + hypot(a, b);
  r += asin(a) + acos(a) + atan(b) + atan2(a, b) + sinh(a) + cosh(b) + tanh(a) + asinh(b);
  r += acosh(a) + atanh(b) + erf(a) + erfc(b) + erfinv(a) + normcdf(b) + tgamma(a) + lgamma(b);
  r += fmod(a, b) + remainder(a, b) + floor(a) + ceil(b) + trunc(a) + rint(b) + round(a);
  r += exp2(a) + exp10(b) + expm1(a) + log2(b) + log10(a) + log1p(b) + logb(a) + j0(a) + y1(b);
  r += jn(3, a) + sinpi(a) + cospi(b) + rsqrt(a) + rcbrt(b) + fdim(a, b) + fmax(a, b) + fmin(a, b);
  r += nextafter(a, b) + copysign(a, b) + cyl_bessel_i0(a) + erfcx(b) + norm3d(a, b, r);
  int e;
  r += frexp(a, &e) + ldexp(b, e) + scalbn(a, e) + ilogb(b) + llrint(a) + lround(b);
  T s, c;
  sincos(a, &s, &c);
  r += s * c + fma(a, b, r) + modf(r, &s);
  return isnan(r) || isinf(a) || !isfinite(b) || signbit(r) ? a : r;
}
__global__ void mathematics(float* f, double* d) {
  unsigned id = threadIdx.x;
  f[id] = everything<float>(f[id], f[id + 1]);
  d[id] = everything<double>(d[id], d[id + 1]);
  f[id] += __sinf(f[id]) + __expf(f[id]) + __logf(f[id]) + __powf(f[id], f[id + 1]) +
           __tanf(f[id]) + __fdividef(f[id], f[id + 1]) + __saturatef(f[id]) + __frsqrt_rn(f[id]) +
           __fsqrt_rd(f[id]) + __fdiv_ru(f[id], f[id + 1]) + __fmaf_rz(f[id], f[id], f[id + 1]);
}
