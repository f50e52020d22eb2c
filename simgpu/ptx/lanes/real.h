// Floating-point arithmetic of one lane: every rounding mode, half precision, and approximate
// functions. Compiled per instruction set, like lanes.h. No libm: each function here gives the same
// bits on every machine.
#pragma once

#include "ptx/lanes/lanes.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace simgpu::ptx::SIMGPU_ARCH {

inline float nan_to_canonical(float x) { return x == x ? x : bits<float>(0x7fffffffu); }
inline double nan_to_canonical(double x) {
  return x == x ? x : bits<double>(0xfff8000000000000ull);
}
inline float flush(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
inline float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline double saturate(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }

// ---- exact software rounding ----

// value = (-1)^negative * magnitude * 2^exponent (sticky: a little more than that), rounded to a
// binary format with `precision` bits of significand (the hidden one included) and least normal
// exponent `emin`; emax = 1 - emin. Gives the bits without sign: infinity or the largest number on
// overflow, as the mode asks.
inline uint64_t round_to_format(bool negative, unsigned __int128 magnitude, int exponent,
                                bool sticky, Round mode, int precision, int emin) {
  if (magnitude == 0 && !sticky) return 0;
  const int emax = 1 - emin;
  // Bring the leading one to bit 126, leaving room for the sticky bit at the bottom.
  uint64_t high = (uint64_t)(magnitude >> 64), low = (uint64_t)magnitude;
  if (magnitude == 0) {
    low = 1;
    magnitude = 1;
    exponent -= 200;
    sticky = false;
  }
  int lead = high != 0 ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll(low);
  int shift = 126 - lead;
  if (shift >= 0) {
    magnitude <<= shift;
  } else {
    sticky |= (magnitude & 1) != 0;
    magnitude >>= 1;
  }
  exponent -= shift;
  int top = exponent + 126;  // exponent of the leading one
  int keep = precision;
  if (top < emin) keep = precision - (emin - top);
  unsigned __int128 kept;
  bool half, rest;
  if (keep < 0) {
    kept = 0;
    half = false;
    rest = true;
  } else {
    int drop = 127 - keep;
    kept = keep == 0 ? 0 : magnitude >> drop;
    half = (magnitude >> (drop - 1) & 1) != 0;
    rest = (magnitude & (((unsigned __int128)1 << (drop - 1)) - 1)) != 0 || sticky;
  }
  bool up = false;
  switch (mode) {
    case Round::kNearest:
    case Round::kNone:
      up = half && (rest || (kept & 1));
      break;
    case Round::kNearestAway:
      up = half;
      break;
    case Round::kZero:
      break;
    case Round::kDown:
      up = negative && (half || rest);
      break;
    case Round::kUp:
      up = !negative && (half || rest);
      break;
  }
  uint64_t m = (uint64_t)kept + (up ? 1 : 0);
  const uint64_t hidden = 1ull << (precision - 1);
  if (top < emin)
    return m;  // subnormal; a carry to the hidden bit gives the least normal number by itself
  if (m == hidden << 1) {
    m = hidden;
    ++top;
  }
  if (top > emax) {
    bool largest = mode == Round::kZero || (mode == Round::kDown && !negative) ||
                   (mode == Round::kUp && negative);
    uint64_t infinity = (uint64_t)(emax - emin + 2) << (precision - 1);
    return largest ? infinity - 1 : infinity;
  }
  return (uint64_t)(top - emin + 1) << (precision - 1) | (m & (hidden - 1));
}

struct Parts {
  bool negative;
  uint64_t magnitude;
  int exponent;
};
inline Parts split(double x) {
  uint64_t b = bits<uint64_t>(x);
  uint64_t m = b & 0xfffffffffffffull;
  int e = (int)(b >> 52 & 0x7ff);
  if (e == 0) return {b >> 63 != 0, m, -1074};
  return {b >> 63 != 0, m | 1ull << 52, e - 1075};
}

// a * b + c with one rounding to the given format; finite arguments only.
inline uint64_t fused(double a, double b, double c, Round mode, int precision, int emin,
                      bool* negative) {
  Parts x = split(a), y = split(b), z = split(c);
  unsigned __int128 p = (unsigned __int128)x.magnitude * y.magnitude;
  int pe = x.exponent + y.exponent;
  bool pn = x.negative != y.negative;
  unsigned __int128 q = z.magnitude;
  int qe = z.exponent;
  bool qn = z.negative;
  if (p == 0 && q == 0) {
    *negative = pn == qn ? pn : mode == Round::kDown;
    return 0;
  }
  if (q == 0) {
    *negative = pn;
    return round_to_format(pn, p, pe, false, mode, precision, emin);
  }
  if (p == 0) {
    *negative = qn;
    return round_to_format(qn, q, qe, false, mode, precision, emin);
  }
  // Align: the larger in exponent of its leading bit moves up to bit 125, the other follows with a
  // sticky bit.
  auto lead = [](unsigned __int128 v) {
    uint64_t h = (uint64_t)(v >> 64);
    return h != 0 ? 127 - __builtin_clzll(h) : 63 - __builtin_clzll((uint64_t)v);
  };
  auto raise = [&](unsigned __int128* v, int* e) {
    int s = 124 - lead(*v);
    *v <<= s;
    *e -= s;
  };
  raise(&p, &pe);
  raise(&q, &qe);
  bool sticky = false;
  auto lower = [&](unsigned __int128* v, int by) {
    if (by == 0) return;
    if (by > 127) {
      sticky = *v != 0;
      *v = 0;
    } else {
      sticky = (*v & (((unsigned __int128)1 << by) - 1)) != 0;
      *v >>= by;
    }
  };
  int e = pe > qe ? pe : qe;
  bool p_lowered = pe < qe;
  lower(&p, e - pe);
  lower(&q, e - qe);
  if (pn == qn) {
    *negative = pn;
    return round_to_format(pn, p + q, e, sticky, mode, precision, emin);
  }
  // Subtraction: what was cut off belongs to the lowered operand, so borrow one unit and keep it
  // sticky.
  bool p_larger = p > q || (p == q && !p_lowered && sticky);
  if (p == q && !sticky) {
    *negative = mode == Round::kDown;
    return 0;
  }
  unsigned __int128 difference = p_larger ? p - q : q - p;
  bool lowered_is_smaller = p_larger != p_lowered;
  if (sticky && lowered_is_smaller) --difference;
  *negative = p_larger ? pn : qn;
  return round_to_format(*negative, difference, e, sticky, mode, precision, emin);
}

inline bool finite(double x) { return (bits<uint64_t>(x) >> 52 & 0x7ff) != 0x7ff; }

inline double fma64_soft(double a, double b, double c, Round mode) {
  if (!finite(a) || !finite(b) || !finite(c)) {
    if (finite(a) && finite(b)) return c;  // an infinite or NaN addend
    return a * b + c;                      // no rounding can matter
  }
  bool negative;
  uint64_t r = fused(a, b, c, mode, 53, -1022, &negative);
  return bits<double>(r | (uint64_t)negative << 63);
}
inline float fma32_soft(float a, float b, float c, Round mode) {
  if (!finite(a) || !finite(b) || !finite(c)) {
    if (finite(a) && finite(b)) return c;
    return a * b + c;
  }
  bool negative;
  uint32_t r = (uint32_t)fused(a, b, c, mode, 24, -126, &negative);
  return bits<float>(r | (uint32_t)negative << 31);
}
inline double fma64(double a, double b, double c) {
#if defined(__FMA__)
  return __builtin_fma(a, b, c);
#else
  return fma64_soft(a, b, c, Round::kNearest);
#endif
}

// The exact a*b+c for narrower formats in a double, rounded to odd, so that a second rounding is
// harmless.
inline double fma_to_odd(double a, double b, double c) {
  double p = a * b;  // exact: at most 48 bits
  double s = p + c;
  double t = s - p;
  double error = (p - (s - t)) + (c - t);
  uint64_t u = bits<uint64_t>(s);
  // Inexact and even: step towards the error's side.
  bool fix = error != 0 && (u & 1) == 0 && finite(s);
  bool away = (error > 0) == (s > 0);
  uint64_t stepped = away ? u + 1 : u - 1;
  return bits<double>(fix ? stepped : u);
}
inline float fma32(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return (float)fma_to_odd(a, b, c);
#endif
}

// Runs f under a rounding mode of the machine. The operations inside are volatile assembly, which
// keeps its order.
inline void set_rounding(Round mode) {
  uint32_t csr = 0x1f80u | (mode == Round::kDown   ? 0x2000u
                            : mode == Round::kUp   ? 0x4000u
                            : mode == Round::kZero ? 0x6000u
                                                   : 0);
  asm volatile("ldmxcsr %0" ::"m"(csr) : "memory");
}
inline float add_asm(float a, float b) {
  asm volatile("addss %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline float mul_asm(float a, float b) {
  asm volatile("mulss %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline float div_asm(float a, float b) {
  asm volatile("divss %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline float sqrt_asm(float a) {
  asm volatile("sqrtss %0, %0" : "+x"(a));
  return a;
}
inline double add_asm(double a, double b) {
  asm volatile("addsd %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline double mul_asm(double a, double b) {
  asm volatile("mulsd %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline double div_asm(double a, double b) {
  asm volatile("divsd %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline double sqrt_asm(double a) {
  asm volatile("sqrtsd %0, %0" : "+x"(a));
  return a;
}

// ---- half precision ----

inline float half_to_float(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  if (e == 31) return bits<float>(sign | 0x7f800000u | m << 13 | (m != 0 ? 0x400000u : 0));
  if (e == 0) {
    float f = (float)m * 0x1p-24f;
    return bits<float>(bits<uint32_t>(f) | sign);
  }
  return bits<float>(sign | (e + 112) << 23 | m << 13);
#endif
}
inline float bfloat_to_float(uint16_t h) { return bits<float>((uint32_t)h << 16); }

inline uint16_t float_to_bfloat(float x) {
  uint32_t u = bits<uint32_t>(x);
  uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return x == x ? (uint16_t)r : 0x7fff;
}
inline uint16_t float_to_half(float x) {
  if (!(x == x)) return 0x7fff;
#if defined(__F16C__)
  return _cvtss_sh(x, 0);
#else
  uint32_t u = bits<uint32_t>(x), sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);  // rounds to 65536 or more
  if (u < 0x38800000u) {  // subnormal: let the adder round at 2^-24
    float f = bits<float>(u) + 0.5f;
    return (uint16_t)(sign | (bits<uint32_t>(f) - 0x3f000000u));
  }
  u += 0xfff + (u >> 13 & 1);
  return (uint16_t)(sign | (u - 0x38000000u) >> 13);
#endif
}
// From a double that may have been rounded to odd.
inline uint16_t double_to_half(double x) {
  // float with round to odd, then the last rounding.
  float f = (float)x;
  if (!(x == x)) return 0x7fff;
  uint32_t u = bits<uint32_t>(f);
  double back = f;
  if (back != x && finite(back)) {
    // f was rounded; move to the odd neighbour on x's side.
    bool above = __builtin_fabs(back) > __builtin_fabs(x);
    if (above) --u;  // now truncated
    u |= 1;
  }
  return float_to_half(bits<float>(u));
}
inline uint16_t double_to_bfloat(double x) {
  float f = (float)x;
  if (!(x == x)) return 0x7fff;
  uint32_t u = bits<uint32_t>(f);
  double back = f;
  if (back != x && finite(x) && (u & 0x7fffffff) != 0x7f800000u) {
    bool above = __builtin_fabs(back) > __builtin_fabs(x);
    if (above) --u;
    u |= 1;
  }
  return float_to_bfloat(bits<float>(u));
}

struct Half {
  static constexpr int kPrecision = 11, kEmin = -14;
  static constexpr uint16_t kOne = 0x3c00, kInfinity = 0x7c00;
  static float widen(uint16_t h) { return half_to_float(h); }
  static uint16_t narrow(float f) { return float_to_half(f); }
  static uint16_t narrow_odd(double d) { return double_to_half(d); }
};
struct Bfloat {
  static constexpr int kPrecision = 8, kEmin = -126;
  static constexpr uint16_t kOne = 0x3f80, kInfinity = 0x7f80;
  static float widen(uint16_t h) { return bfloat_to_float(h); }
  static uint16_t narrow(float f) { return float_to_bfloat(f); }
  static uint16_t narrow_odd(double d) { return double_to_bfloat(d); }
};

// ---- approximate functions (all in double, no branches on the value but at the edges) ----

inline double round_even(double x) {  // |x| < 2^51
  const double magic = 0x1.8p52;
  return (x + magic) - magic;
}

inline float ex2_approx(float x) {
  double v = x;
  v = v < -200.0 ? -200.0 : v;
  v = v > 200.0 ? 200.0 : v;
  double n = round_even(v);
  double f = v - n;
  // 2^f on [-0.5, 0.5]: Taylor in f ln 2, relative error below 1e-10.
  double r = 1.0178086009239699e-7;
  r = r * f + 1.3215486790144307e-6;
  r = r * f + 1.5252733804059841e-5;
  r = r * f + 1.5403530393381610e-4;
  r = r * f + 1.3333558146428443e-3;
  r = r * f + 9.6181291076284772e-3;
  r = r * f + 5.5504108664821580e-2;
  r = r * f + 2.4022650695910072e-1;
  r = r * f + 6.9314718055994531e-1;
  r = r * f + 1.0;
  int64_t e = (int64_t)bits<uint64_t>(n + 0x1.8p52) << 52;  // low bits of the sum are n
  double scale = bits<double>((uint64_t)e + 0x3ff0000000000000ull);
  float result = (float)(r * scale);
  return x == x ? result : bits<float>(0x7fffffffu);
}

inline float lg2_approx(float x) {
  // Subnormals are scaled; the special cases are chosen at the end.
  double v = x;
  uint64_t u = bits<uint64_t>(v);
  int64_t e = (int64_t)(u >> 52) - 1023;
  uint64_t m = (u & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double f = bits<double>(m);
  bool high = f > 1.4142135623730951;
  f = high ? f * 0.5 : f;
  e = high ? e + 1 : e;
  double t = (f - 1.0) / (f + 1.0), s = t * t;
  double r = 0.26230818925253881;   // 2/ln2/11
  r = r * s + 0.32059889797532520;  // /9
  r = r * s + 0.41219858311113239;  // /7
  r = r * s + 0.57707801635558535;  // /5
  r = r * s + 0.96179669392597556;  // /3
  r = r * s + 2.8853900817779268;   // 2/ln2
  double de = (double)(int32_t)e;
  float result = (float)(de + t * r);
  if (x == 0.0f) result = -__builtin_inff();
  if (x == __builtin_inff()) result = x;
  if (!(x >= 0.0f)) result = bits<float>(0x7fffffffu);
  return result;
}

// sin and cos of x - n * pi/2 with a two-part pi/2; enough for |x| to about 2^30, deterministic
// beyond.
inline double reduce(float x, int64_t* quadrant) {
  double v = x;
  double k = v * 0.63661977236758134308;
  double n = __builtin_fabs(k) < 0x1p50 ? round_even(k) : 0.0;
  *quadrant = (int64_t)(int32_t)(uint32_t)bits<uint64_t>(n + 0x1.8p52);
  double r = v - n * 1.570796310901641845703125;  // 24 bits of pi/2: exact for n below 2^29
  return r - n * 1.589325477352819669e-8;
}
inline double sin_poly(double r) {
  double s = r * r;
  double p = 2.7557319223985893e-6;
  p = p * s - 1.9841269841269841e-4;
  p = p * s + 8.3333333333333332e-3;
  p = p * s - 1.6666666666666666e-1;
  return r + r * s * p;
}
inline double cos_poly(double r) {
  double s = r * r;
  double p = -2.7557319223985888e-7;
  p = p * s + 2.4801587301587302e-5;
  p = p * s - 1.3888888888888889e-3;
  p = p * s + 4.1666666666666664e-2;
  p = p * s - 0.5;
  return 1.0 + s * p;
}
inline float sincos_approx(float x, int shift) {
  int64_t q;
  double r = reduce(x, &q);
  q += shift;
  double s = sin_poly(r), k = cos_poly(r);
  double v = q & 1 ? k : s;
  v = q & 2 ? -v : v;
  float result = (float)v;
  // Keep the sign of zero; infinities and NaN have no sine.
  if (x == 0.0f && shift == 0) result = x;
  return __builtin_fabsf(x) < __builtin_inff() ? result : bits<float>(0x7fffffffu);
}

inline float tanh_approx(float x) {
  float a = __builtin_fabsf(x);
  // For small x the quotient loses nothing that 2^-11 would show; a series keeps it smooth at zero.
  double v = a;
  v = v > 20.0 ? 20.0 : v;
  float e = ex2_approx((float)(v * 2.8853900817779268));
  double big = 1.0 - 2.0 / ((double)e + 1.0);
  double s = v * v;
  double small =
      v * (1.0 + s * (-0.33333333333333331 + s * (0.13333333333333333 - s * 0.053968253968253971)));
  float r = (float)(v < 0.1 ? small : big);
  r = __builtin_copysignf(r, x);
  return x == x ? r : bits<float>(0x7fffffffu);
}

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

}  // namespace simgpu::ptx::SIMGPU_ARCH
