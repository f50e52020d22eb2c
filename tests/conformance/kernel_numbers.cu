// Half, bfloat and 8-bit floats: the headers' own functions, which exist for the CPU as well, must
// agree bit for bit. Mathematical functions: within the bounds the CUDA programming guide states,
// against the C library's results of higher precision.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <cfenv>
#include <initializer_list>

#include "conformance.h"

#define BITS16(v) ((uint64_t)__half_as_ushort(v))
#define BITSB(v) ((uint64_t)__bfloat16_as_ushort(v))

// What the headers have for the GPU alone is done here for the CPU.
#pragma nv_diag_suppress 177
#ifdef __CUDA_ARCH__
#define EITHER(device, host) device
#else
#define EITHER(device, host) host
#endif
static inline uint64_t to_int(double v, int mode, int bits, bool sign) {
  if (v != v) return bits == 64 ? 1ull << 63 : 0;
  fesetround(mode);
  volatile double x = v;
  volatile double r = nearbyint(x);
  fesetround(FE_TONEAREST);
  const double top = ldexp(1.0, sign ? bits - 1 : bits);
  if (r >= top) return sign ? ~0ull >> (65 - bits) : ~0ull >> (64 - bits);
  if (sign ? r < -top : r < 0) return sign ? 1ull << (bits - 1) : 0;
  return (sign ? (uint64_t)(int64_t)r : (uint64_t)r) & (~0ull >> (64 - bits));
}
static inline float towards_zero(unsigned long long v) {
  fesetround(FE_TOWARDZERO);
  volatile long double x = (long double)v;
  volatile float r = (float)x;
  fesetround(FE_TONEAREST);
  return r;
}

// ---- conversions and arithmetic of small types ----

#define SMALL(X)                                                                                   \
  X(f2h_rn, BITS16(__float2half_rn(f)))                                                            \
  X(f2h_rz, BITS16(__float2half_rz(f)))                                                            \
  X(f2h_ru, BITS16(__float2half_ru(f)))                                                            \
  X(f2h_rd, BITS16(__float2half_rd(f)))                                                            \
  X(d2h, BITS16(__double2half(d)))                                                                 \
  X(h2f, word32(__half2float(p)))                                                                  \
  X(h2i_rn, EITHER((uint32_t)__half2int_rn(p), to_int(__half2float(p), FE_TONEAREST, 32, true)))   \
  X(h2i_rz, (uint32_t)__half2int_rz(p))                                                            \
  X(h2i_ru, EITHER((uint32_t)__half2int_ru(p), to_int(__half2float(p), FE_UPWARD, 32, true)))      \
  X(h2i_rd, EITHER((uint32_t)__half2int_rd(p), to_int(__half2float(p), FE_DOWNWARD, 32, true)))    \
  X(h2u_rn, EITHER(__half2uint_rn(p), to_int(__half2float(p), FE_TONEAREST, 32, false)))           \
  X(h2s_rz, (uint16_t)__half2short_rz(p))                                                          \
  X(h2us_ru, EITHER(__half2ushort_ru(p), to_int(__half2float(p), FE_UPWARD, 16, false)))           \
  X(h2ll_rn, EITHER((uint64_t)__half2ll_rn(p), to_int(__half2float(p), FE_TONEAREST, 64, true)))   \
  X(h2ull_rd, EITHER((uint64_t)__half2ull_rd(p), to_int(__half2float(p), FE_DOWNWARD, 64, false))) \
  X(i2h_rn, BITS16(__int2half_rn((int)x)))                                                         \
  X(i2h_rz, BITS16(__int2half_rz((int)x)))                                                         \
  X(u2h_ru, BITS16(__uint2half_ru(x)))                                                             \
  X(ll2h_rn, BITS16(__ll2half_rn((long long)a)))                                                   \
  X(ull2h_rd, BITS16(__ull2half_rd(a)))                                                            \
  X(s2h_rn, BITS16(__short2half_rn((short)x)))                                                     \
  X(us2h_rd, BITS16(__ushort2half_rd((unsigned short)x)))                                          \
  X(hadd, BITS16(__hadd(p, q)))                                                                    \
  X(hsub, BITS16(__hsub(p, q)))                                                                    \
  X(hmul, BITS16(__hmul(p, q)))                                                                    \
  X(hadd_sat, BITS16(__hadd_sat(p, q)))                                                            \
  X(hmul_sat, BITS16(__hmul_sat(p, q)))                                                            \
  X(hneg, BITS16(__hneg(p)) & (nan(p) ? 0 : ~0ull))                                                \
  X(habs, BITS16(__habs(p)) & (nan(p) ? 0 : ~0ull))                                                \
  X(hcmp, (uint64_t)(__heq(p, q) | __hne(p, q) << 1 | __hlt(p, q) << 2 | __hge(p, q) << 3 |        \
                     __hequ(p, q) << 4 | __hneu(p, q) << 5 | __hltu(p, q) << 6 |                   \
                     __hgtu(p, q) << 7 | __hisnan(p) << 8 | (__hisinf(p) != 0) << 9))              \
  X(f2b_rn, BITSB(__float2bfloat16_rn(f)))                                                         \
  X(f2b_rz, BITSB(__float2bfloat16_rz(f)))                                                         \
  X(f2b_ru, BITSB(__float2bfloat16_ru(f)))                                                         \
  X(f2b_rd, BITSB(__float2bfloat16_rd(f)))                                                         \
  X(d2b, BITSB(__double2bfloat16(d)))                                                              \
  X(b2f, word32(__bfloat162float(r)))                                                              \
  X(b2i_rn,                                                                                        \
    EITHER((uint32_t)__bfloat162int_rn(r), to_int(__bfloat162float(r), FE_TONEAREST, 32, true)))   \
  X(b2u_rz, __bfloat162uint_rz(r))                                                                 \
  X(b2ll_ru,                                                                                       \
    EITHER((uint64_t)__bfloat162ll_ru(r), to_int(__bfloat162float(r), FE_UPWARD, 64, true)))       \
  X(i2b_rn, BITSB(__int2bfloat16_rn((int)x)))                                                      \
  X(ull2b_rz, EITHER(BITSB(__ull2bfloat16_rz(a)), BITSB(__float2bfloat16_rz(towards_zero(a)))))    \
  X(badd, BITSB(__hadd(r, s)))                                                                     \
  X(bmul, BITSB(__hmul(r, s)))                                                                     \
  X(e4m3, (uint64_t)__nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E4M3))                           \
  X(e4m3_no, (uint64_t)__nv_cvt_float_to_fp8(f, __NV_NOSAT, __NV_E4M3))                            \
  X(e5m2, (uint64_t)__nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E5M2))                           \
  X(e5m2_d, (uint64_t)__nv_cvt_double_to_fp8(d, __NV_SATFINITE, __NV_E5M2))                        \
  X(e4m3_h, (uint64_t)__nv_cvt_halfraw_to_fp8((__half_raw)p, __NV_SATFINITE, __NV_E4M3))           \
  X(e4m3_b,                                                                                        \
    (uint64_t)__nv_cvt_bfloat16raw_to_fp8((__nv_bfloat16_raw)r, __NV_SATFINITE, __NV_E4M3))        \
  X(e4m3x2, (uint64_t)__nv_cvt_float2_to_fp8x2(make_float2(f, g), __NV_SATFINITE, __NV_E4M3))      \
  X(from_e4m3, BITS16(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, __NV_E4M3))))          \
  X(from_e5m2, BITS16(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, __NV_E5M2))))          \
  X(e8m0, (uint64_t)__nv_cvt_float_to_e8m0(f, __NV_SATFINITE, cudaRoundPosInf))                    \
  X(e2m3, (uint64_t)__nv_cvt_float_to_fp6(f, __NV_E2M3, cudaRoundNearest))                         \
  X(e3m2, (uint64_t)__nv_cvt_float_to_fp6(f, __NV_E3M2, cudaRoundNearest))                         \
  X(from_e3m2, BITS16(__half(__nv_cvt_fp6_to_halfraw((__nv_fp6_storage_t)(x & 63), __NV_E3M2))))   \
  X(e2m1, (uint64_t)__nv_cvt_float_to_fp4(f, __NV_E2M1, cudaRoundNearest))                         \
  X(from_e2m1, BITS16(__half(__nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)(x & 15), __NV_E2M1))))

enum Small {
#define NAME(name, expression) k_##name,
  SMALL(NAME)
#undef NAME
      kSmalls
};
static const char* const kSmallNames[] = {
#define NAME(name, expression) #name,
    SMALL(NAME)
#undef NAME
};

template <class T, class U>
__host__ __device__ T same(U v) {
  T r;
  memcpy(&r, &v, sizeof r);
  return r;
}
__host__ __device__ inline uint64_t word32(float v) {
  return v != v ? 0x7fffffffu : same<uint32_t>(v);
}
__host__ __device__ inline bool nan(__half v) { return __hisnan(v); }

__host__ __device__ inline uint64_t small(int row, uint64_t a, uint64_t b) {
  const uint32_t x = (uint32_t)a, y = (uint32_t)b;
  const float f = same<float>(x), g = same<float>(y);
  const double d = same<double>(a);
  const __half p = __ushort_as_half((unsigned short)x), q = __ushort_as_half((unsigned short)y);
  const __nv_bfloat16 r = __ushort_as_bfloat16((unsigned short)(x >> 16)),
                      s = __ushort_as_bfloat16((unsigned short)(y >> 16));
  (void)f, (void)g, (void)d, (void)p, (void)q, (void)r, (void)s;
  switch (row) {
#define CASE(name, expression) \
  case k_##name:               \
    return expression;
    SMALL(CASE)
#undef CASE
  }
  return 0;
}

__global__ void smalls(const uint64_t* in, uint64_t* out, int row, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = small(row, in[i], in[i + 1]);
}

// ---- mathematical functions ----

// Name, function of x and y, bound in units of the last place for float and for double (0: exact;
// -1: not for this type). The C library's own error is below one.
#define FUNCTIONS(X)                   \
  X(sqrt, sqrt(x), 1, 0)               \
  X(rsqrt, 1 / sqrt(x), 3, 2)          \
  X(cbrt, cbrt(x), 2, 5)               \
  X(sin, sin(y), 3, 3)                 \
  X(cos, cos(y), 3, 3)                 \
  X(tan, tan(y), 5, 3)                 \
  X(sinh, sinh(y), 4, 3)               \
  X(cosh, cosh(y), 3, 2)               \
  X(tanh, tanh(y), 3, 2)               \
  X(asin, asin(u), 3, 3)               \
  X(acos, acos(u), 3, 3)               \
  X(atan, atan(y), 3, 3)               \
  X(atan2, atan2(y, x), 4, 3)          \
  X(asinh, asinh(y), 4, 4)             \
  X(acosh, acosh(x < 1 ? 1 : x), 5, 4) \
  X(atanh, atanh(u), 4, 3)             \
  X(exp, exp(y), 3, 2)                 \
  X(exp2, exp2(y), 3, 2)               \
  X(expm1, expm1(y), 2, 2)             \
  X(log, log(x), 2, 2)                 \
  X(log2, log2(x), 2, 2)               \
  X(log10, log10(x), 3, 2)             \
  X(log1p, log1p(x), 2, 2)             \
  X(pow, pow(x, u), 5, 3)              \
  X(erf, erf(y), 3, 3)                 \
  X(erfc, erfc(u), 5, 6)               \
  X(tgamma, tgamma(x), 6, 11)          \
  X(lgamma, lgamma(x), 7, 5)           \
  X(hypot, hypot(x, y), 4, 3)          \
  X(fmod, fmod(y, x), 0, 0)            \
  X(remainder, remainder(y, x), 0, 0)  \
  X(fdim, fdim(x, y), 0, 0)            \
  X(floor, floor(y), 0, 0)             \
  X(ceil, ceil(y), 0, 0)               \
  X(round, round(y), 0, 0)             \
  X(nextafter, nextafter(y, x), 0, 0)  \
  X(logb, logb(x), 0, 0)               \
  X(ldexp, ldexp(y, 7), 0, 0)          \
  X(divide, y / x, 0, 0)               \
  X(fma, fma(x, y, u), 0, 0)

enum Function {
#define NAME(name, expression, single, twice) f_##name,
  FUNCTIONS(NAME)
#undef NAME
      kFunctions
};
static const char* const kFunctionNames[] = {
#define NAME(name, expression, single, twice) #name,
    FUNCTIONS(NAME)
#undef NAME
};
static const int kBounds[][2] = {
#define NAME(name, expression, single, twice) {single, twice},
    FUNCTIONS(NAME)
#undef NAME
};

// W computes, T holds: on the CPU a float's function is computed in double, a double's in long
// double, but exact ones as they are.
template <class W>
__host__ __device__ W function(int row, W x, W y, W u) {
  switch (row) {
#define CASE(name, expression, single, twice) \
  case f_##name:                              \
    return expression;
    FUNCTIONS(CASE)
#undef CASE
  }
  return 0;
}
template <class T>
__global__ void functions(const T* in, T* out, int row, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = function<T>(row, fabs(in[3 * i]), in[3 * i + 1], in[3 * i + 2]);
}

__global__ void approximations(const float* in, float* out, int row, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[3 * i + 1], a = fabsf(x);
  float r = 0;
  switch (row) {
    case 0:
      r = __sinf(x);
      break;
    case 1:
      r = __cosf(x);
      break;
    case 2:
      r = __expf(x);
      break;
    case 3:
      r = __logf(a);
      break;
    case 4:
      asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
      break;
    case 5:
      asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(a));
      break;
    case 6:
      asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
      break;
    case 7:
      asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
      break;
    case 8:
      asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(a));
      break;
    case 9:
      r = __fdividef(a, x);
      break;
  }
  out[i] = r;
}

static double bits_between(double got, double want, int precision) {
  if (got != got && want != want) return 0;
  if (got == want) return 0;
  int e = 0;
  frexp(want, &e);
  const int least = precision == 24 ? -125 : -1021;
  return fabs(got - want) / ldexp(1.0, (e < least ? least : e) - precision);
}

template <class T>
static int check_functions(const std::vector<T>& in) {
  const int n = (int)in.size() / 3;
  DeviceVector<T> device(in), out((size_t)n);
  int wrong = 0;
  for (int row = 0; row < kFunctions; ++row) {
    functions<T><<<(n + 127) / 128, 128>>>(device.get(), out.get(), row, n);
    CHECK(cudaDeviceSynchronize());
    const std::vector<T> got = out.copy();
    const int bound = kBounds[row][sizeof(T) == 8];
    for (int i = 0, shown = 0; i < n && shown < 2; ++i) {
      const T x = fabs(in[3 * (size_t)i]), y = in[3 * (size_t)i + 1], u = in[3 * (size_t)i + 2];
      // A float's functions are computed in double; double's with the C library, one more unit.
      const double want =
          bound == 0 ? (double)function<T>(row, x, y, u) : (double)function<double>(row, x, y, u);
      const double off =
          bits_between((double)got[(size_t)i], (double)(T)want, sizeof(T) == 8 ? 53 : 24);
      if (off <= bound) continue;
      fprintf(stderr, "%s of %a, %a, %a: %a instead of %a, %g units off\n", kFunctionNames[row],
              (double)x, (double)y, (double)u, (double)got[(size_t)i], want, off);
      ++shown;
      ++wrong;
    }
  }
  return wrong;
}

static int check_approximations(const std::vector<float>& in) {
  // PTX's bounds: absolute, relative.
  static const double kMost[][2] = {{6e-7, 0},   {6e-7, 0},   {1e-38, 1.3e-6}, {3e-7, 3e-7},
                                    {0, 2.4e-7}, {0, 2.4e-7}, {0, 5e-4},       {0, 1.2e-7},
                                    {0, 2.4e-7}, {0, 2.4e-7}};
  const int n = (int)in.size() / 3;
  DeviceVector<float> device(in), out((size_t)n);
  int wrong = 0;
  for (int row = 0; row < 10; ++row) {
    approximations<<<(n + 127) / 128, 128>>>(device.get(), out.get(), row, n);
    CHECK(cudaDeviceSynchronize());
    const std::vector<float> got = out.copy();
    for (int i = 0, shown = 0; i < n && shown < 2; ++i) {
      const double x = (double)in[3 * (size_t)i + 1], a = fabs(x);
      if ((row < 2 && a > 3.1415926) || x == 0) continue;
      const double all[] = {sin(x),      cos(x),  exp(x), log(a),  exp2(x),
                            1 / sqrt(a), tanh(x), 1 / x,  sqrt(a), a / x};
      const double want = all[row], off = fabs((double)got[(size_t)i] - want);
      if (row == 2 && off <= (2 + floor(1.173 * a)) * 0x1p-23 * want) continue;
      if (off <= kMost[row][0] + kMost[row][1] * fabs(want) || (float)want == got[(size_t)i])
        continue;
      fprintf(stderr, "approximation %d of %a: %a instead of %a\n", row, x, (double)got[(size_t)i],
              want);
      ++shown;
      ++wrong;
    }
  }
  return wrong;
}

int main() {
  std::vector<uint64_t> in;
  for (uint64_t v = 0; v < 65536; v += 7) in.push_back(v | scramble64(v) << 16);
  for (int e = -160; e < 150; ++e)
    for (int k = 0; k < 8; ++k) {
      const float f = (k & 1 ? -1.0f : 1.0f) *
                      ldexpf(1.0f + (float)scramble((uint32_t)(e * 8 + k)) * 0x1p-32f, e);
      const double d = (double)f * (1 + 1e-9 * k);
      in.push_back(same<uint32_t>(f) | scramble64((uint64_t)k) << 32);
      in.push_back(same<uint64_t>(d));
    }
  for (float f : {0.0f,     -0.0f,  INFINITY, -INFINITY, NAN,      65504.0f, 65519.0f,
                  65520.0f, 448.0f, 464.0f,   465.0f,    57344.0f, 61440.0f, 6.0f,
                  7.5f,     28.0f,  0.25f,    3.0f,      5e-8f,    3e-8f,    1e-3f})
    in.push_back(same<uint32_t>(f)), in.push_back(same<uint64_t>((double)f));
  const int n = (int)in.size() - 1;
  DeviceVector<uint64_t> device(in), out((size_t)n);
  int wrong = 0;
  for (int row = 0; row < kSmalls; ++row) {
    smalls<<<(n + 127) / 128, 128>>>(device.get(), out.get(), row, n);
    CHECK(cudaDeviceSynchronize());
    const std::vector<uint64_t> got = out.copy();
    for (int i = 0, shown = 0; i < n && shown < 3; ++i) {
      const uint64_t want = small(row, in[(size_t)i], in[(size_t)i + 1]);
      if (got[(size_t)i] == want) continue;
      fprintf(stderr, "%s of %016llx, %016llx: %llx instead of %llx\n", kSmallNames[row],
              (unsigned long long)in[(size_t)i], (unsigned long long)in[(size_t)i + 1],
              (unsigned long long)got[(size_t)i], (unsigned long long)want);
      ++shown;
      ++wrong;
    }
  }

  std::vector<float> floats;
  std::vector<double> doubles;
  for (uint32_t i = 0; i < 600; ++i) {
    const double x = ldexp(1 + scramble(i) * 0x1p-32, (int)(i % 40) - 20) * (i & 1 ? 1 : -1),
                 y = ldexp(1 + scramble(i + 9999) * 0x1p-32, (int)(i % 10) - 5) * (i & 2 ? 1 : -1),
                 u = (scramble(i + 77777) * 0x1p-32) * 1.98 - 0.99;
    for (double v : {i % 40 > 22 ? fmod(x, 20) + 0.01 : x, y, u}) {
      floats.push_back((float)v);
      doubles.push_back(v);
    }
  }
  wrong += check_functions(floats) + check_functions(doubles) + check_approximations(floats);
  if (wrong != 0) return 1;
  return passed();
}
