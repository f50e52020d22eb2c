// Every integer, video and rounding intrinsic against a reference written out for the CPU, bit for
// bit. One list of rows: name, the device's expression, the CPU's. x, y, z are 32-bit words, a, b
// 64 bits, f, g, h floats of x, y, z, d, e, k doubles of a, b and both.
#include <cfenv>
#include <cfloat>
#include <climits>
#include <functional>

#include "conformance.h"

// ---- references ----

static uint32_t ref_popc(uint64_t v) { return (uint32_t)__builtin_popcountll(v); }
static uint64_t ref_brev(uint64_t v, int n) {
  uint64_t r = 0;
  for (int i = 0; i < n; ++i) r |= (v >> i & 1) << (n - 1 - i);
  return r;
}
static uint32_t ref_clz(uint64_t v, int n) {
  int c = 0;
  while (c < n && !(v >> (n - 1 - c) & 1)) ++c;
  return (uint32_t)c;
}
static uint32_t ref_ffs(uint64_t v) { return (uint32_t)__builtin_ffsll((long long)v); }
static uint32_t ref_prmt(uint32_t x, uint32_t y, uint32_t s) {
  const uint64_t all = (uint64_t)y << 32 | x;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t n = s >> (4 * i) & 15, byte = (uint32_t)(all >> (8 * (n & 7))) & 255;
    if (n & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}
static uint32_t ref_shf(bool left, bool clamp, uint32_t lo, uint32_t hi, uint32_t n) {
  n = clamp ? (n > 32 ? 32 : n) : n & 31;
  const uint64_t v = (uint64_t)hi << 32 | lo;
  return left ? (uint32_t)((n == 32 ? (uint64_t)lo << 32 : v << n) >> 32) : (uint32_t)(v >> n);
}
static uint32_t ref_fns(uint32_t mask, uint32_t base, int offset) {
  base &= 31;
  if (offset == 0) return mask >> base & 1 ? base : ~0u;
  int left = offset > 0 ? offset : -offset;
  for (int at = (int)base; at >= 0 && at<32; at += offset> 0 ? 1 : -1)
    if (mask >> at & 1 && --left == 0) return (uint32_t)at;
  return ~0u;
}
static uint64_t ref_bfe(uint64_t v, uint32_t pos, uint32_t len, int bits, bool sign) {
  pos &= 255;
  len &= 255;
  const int msb = bits - 1;
  uint64_t s = 0;
  if (sign && len != 0)
    s = v >> (pos + len - 1 < (uint32_t)msb ? pos + len - 1 : (uint32_t)msb) & 1;
  uint64_t r = 0;
  for (int i = 0; i < bits; ++i) {
    const bool in = (uint32_t)i < len && pos + (uint32_t)i <= (uint32_t)msb;
    r |= (in ? v >> (pos + (uint32_t)i) & 1 : s) << i;
  }
  return r;
}
static uint64_t ref_bfi(uint64_t from, uint64_t to, uint32_t pos, uint32_t len, int bits) {
  pos &= 255;
  len &= 255;
  for (int i = 0; i < (int)len && pos + (uint32_t)i < (uint32_t)bits; ++i) {
    const uint64_t bit = 1ull << (pos + (uint32_t)i);
    to = (to & ~bit) | ((from >> i & 1) ? bit : 0);
  }
  return to;
}
static int32_t part(uint32_t v, int bits, int i, bool sign) {
  uint32_t p = v >> (bits * i) & ((1u << bits) - 1);
  return sign ? (int32_t)(p << (32 - bits)) >> (32 - bits) : (int32_t)p;
}
// Applies f to each part of two words.
template <class F>
static uint32_t parts(uint32_t x, uint32_t y, int bits, bool sign, F f) {
  uint32_t r = 0;
  for (int i = 0; i < 32 / bits; ++i)
    r |= ((uint32_t)f(part(x, bits, i, sign), part(y, bits, i, sign)) & ((1u << bits) - 1))
         << (bits * i);
  return r;
}
static int32_t clamp_to(int64_t v, int bits, bool sign) {
  const int64_t top = sign ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
  const int64_t low = sign ? -(1ll << (bits - 1)) : 0;
  return (int32_t)(v < low ? low : v > top ? top : v);
}
static uint32_t ref_dp4a(uint32_t x, uint32_t y, uint32_t z, bool sx, bool sy) {
  for (int i = 0; i < 4; ++i) z += (uint32_t)(part(x, 8, i, sx) * part(y, 8, i, sy));
  return z;
}
static uint32_t ref_dp2a(uint32_t x, uint32_t y, uint32_t z, bool sign, bool hi) {
  for (int i = 0; i < 2; ++i)
    z += (uint32_t)(part(x, 16, i, sign) * part(y, 8, i + (hi ? 2 : 0), sign));
  return z;
}
static uint32_t ref_sad(uint32_t x, uint32_t y, uint32_t z, bool sign) {
  const int64_t p = sign ? (int64_t)(int32_t)x : x, q = sign ? (int64_t)(int32_t)y : y;
  return z + (uint32_t)(p > q ? p - q : q - p);
}
template <class T>
static T same(uint64_t v) {
  T r;
  memcpy(&r, &v, sizeof r);
  return r;
}
template <class T>
static uint64_t word(T v) {
  uint64_t r = 0;
  memcpy(&r, &v, sizeof v);
  return r;
}
// A NaN is as good as any other; a real GPU gives canonical ones.
static uint64_t real(float v) { return v != v ? 0x7fffffffu : word(v); }
static uint64_t real(double v) { return v != v ? 0x7fffffffffffffffull : word(v); }

template <class T>
static uint64_t round_op(int mode, char op, T x, T y, T z) {
  volatile T p = x, q = y, r = z;
  fesetround(mode);
  volatile T result = op == '+'        ? p + q
                      : op == '-'      ? p - q
                      : op == '*'      ? p * q
                      : op == '/'      ? p / q
                      : op == 'q'      ? (sizeof(T) == 4 ? (T)sqrtf((float)p) : (T)sqrt((double)p))
                      : sizeof(T) == 4 ? (T)fmaf((float)p, (float)q, (float)r)
                                       : (T)fma((double)p, (double)q, (double)r);
  fesetround(FE_TONEAREST);
  return real((T)result);
}
// To an integer: rounded, clamped; NaN as the PTX ISA says.
template <class I, class T>
static uint64_t to_int(int mode, T v) {
  if (v != v) {
    if (sizeof(T) == 4 && sizeof(I) == 4) return 0;
    return sizeof(I) == 4 ? 1ull << 31 : 1ull << 63;
  }
  fesetround(mode);
  volatile double x = (double)v;
  volatile double r = nearbyint(x);
  fesetround(FE_TONEAREST);
  const bool sign = (I)-1 < (I)0;
  const double top = ldexp(1.0, (int)sizeof(I) * 8 - (sign ? 1 : 0));
  I out;
  if (r >= top)
    out = (I)(sign ? ~0ull >> (65 - sizeof(I) * 8) : ~0ull);
  else if (sign ? r <= -top : r <= 0)
    out = (I)(sign ? 1ull << (sizeof(I) * 8 - 1) : 0);
  else
    out = (I)r;
  return sizeof(I) == 4 ? (uint32_t)out : (uint64_t)out;
}
template <class T, class I>
static uint64_t from_int(int mode, I v) {
  fesetround(mode);
  volatile long double x = (long double)v;
  volatile T r = (T)x;
  fesetround(FE_TONEAREST);
  return word((T)r);
}
static float ref_flush(float v) { return fabsf(v) < FLT_MIN ? copysignf(0, v) : v; }

// IEEE 754-2008 minNum and maxNum with an order of zeros; libc's differ in both.
template <class T>
static uint64_t least(T p, T q, bool most) {
  if (p != p) return real(q);
  if (q != q) return real(p);
  if (p == q) return word(signbit(p) != most ? p : q);
  return word((p < q) != most ? p : q);
}

// ---- the rows ----

#define ASM2(text, type, p, q)                                     \
  ([&] {                                                           \
    type r_;                                                       \
    asm volatile(text " %0, %1, %2;" : "=r"(r_) : "r"(p), "r"(q)); \
    return r_;                                                     \
  }())
#define ASM3(text, p, q, s)                                                    \
  ([&] {                                                                       \
    uint32_t r_;                                                               \
    asm volatile(text " %0, %1, %2, %3;" : "=r"(r_) : "r"(p), "r"(q), "r"(s)); \
    return r_;                                                                 \
  }())
#define ASM3L(text, p, q, s)                                                   \
  ([&] {                                                                       \
    uint64_t r_;                                                               \
    asm volatile(text " %0, %1, %2, %3;" : "=l"(r_) : "l"(p), "r"(q), "r"(s)); \
    return r_;                                                                 \
  }())

#define SIMD(X, name, bits, sign, expr) \
  X(name, __##name(x, y), parts(x, y, bits, sign, [](int p, int q) { return expr; }))

#define INTEGERS(X)                                                                                \
  X(popc, __popc(x), ref_popc(x))                                                                  \
  X(popcll, __popcll(a), ref_popc(a))                                                              \
  X(brev, __brev(x), ref_brev(x, 32))                                                              \
  X(brevll, __brevll(a), ref_brev(a, 64))                                                          \
  X(clz, __clz((int)x), ref_clz(x, 32))                                                            \
  X(clzll, __clzll((long long)a), ref_clz(a, 64))                                                  \
  X(ffs, __ffs((int)x), ref_ffs(x))                                                                \
  X(ffsll, __ffsll((long long)a), ref_ffs(a))                                                      \
  X(byte_perm, __byte_perm(x, y, z), ref_prmt(x, y, z & 0x7777))                                   \
  X(prmt, ASM3("prmt.b32", x, y, z), ref_prmt(x, y, z))                                            \
  X(shf_l, __funnelshift_l(x, y, z), ref_shf(true, false, x, y, z))                                \
  X(shf_lc, __funnelshift_lc(x, y, z), ref_shf(true, true, x, y, z))                               \
  X(shf_r, __funnelshift_r(x, y, z), ref_shf(false, false, x, y, z))                               \
  X(shf_rc, __funnelshift_rc(x, y, z), ref_shf(false, true, x, y, z))                              \
  X(fns, __fns(x, y & 31, (int)(z % 9) - 4), ref_fns(x, y & 31, (int)(z % 9) - 4))                 \
  X(mulhi, __mulhi((int)x, (int)y), (uint32_t)((int64_t)(int)x * (int)y >> 32))                    \
  X(umulhi, __umulhi(x, y), (uint32_t)((uint64_t)x * y >> 32))                                     \
  X(mul64hi, __mul64hi((long long)a, (long long)b),                                                \
    (uint64_t)((__int128)(int64_t)a * (int64_t)b >> 64))                                           \
  X(umul64hi, __umul64hi(a, b), (uint64_t)((unsigned __int128)a * b >> 64))                        \
  X(mul24, __mul24((int)x, (int)y),                                                                \
    (uint32_t)((int64_t)((int)(x << 8) >> 8) * ((int)(y << 8) >> 8)))                              \
  X(umul24, __umul24(x, y), (x & 0xffffff) * (y & 0xffffff))                                       \
  X(sad, __sad((int)x, (int)y, z), ref_sad(x, y, z, true))                                         \
  X(usad, __usad(x, y, z), ref_sad(x, y, z, false))                                                \
  X(hadd, __hadd((int)x, (int)y), (uint32_t)(((int64_t)(int)x + (int)y) >> 1))                     \
  X(rhadd, __rhadd((int)x, (int)y), (uint32_t)(((int64_t)(int)x + (int)y + 1) >> 1))               \
  X(uhadd, __uhadd(x, y), (uint32_t)(((uint64_t)x + y) >> 1))                                      \
  X(urhadd, __urhadd(x, y), (uint32_t)(((uint64_t)x + y + 1) >> 1))                                \
  X(dp4a_s, __dp4a((int)x, (int)y, (int)z), ref_dp4a(x, y, z, true, true))                         \
  X(dp4a_u, __dp4a(x, y, z), ref_dp4a(x, y, z, false, false))                                      \
  X(dp4a_su, ASM3("dp4a.s32.u32", x, y, z), ref_dp4a(x, y, z, true, false))                        \
  X(dp2a_lo_s, __dp2a_lo((int)x, (int)y, (int)z), ref_dp2a(x, y, z, true, false))                  \
  X(dp2a_hi_s, __dp2a_hi((int)x, (int)y, (int)z), ref_dp2a(x, y, z, true, true))                   \
  X(dp2a_lo_u, __dp2a_lo(x, y, z), ref_dp2a(x, y, z, false, false))                                \
  X(dp2a_hi_u, __dp2a_hi(x, y, z), ref_dp2a(x, y, z, false, true))                                 \
  X(bfe_u32, ASM3("bfe.u32", x, y, z), ref_bfe(x, y, z, 32, false))                                \
  X(bfe_s32, ASM3("bfe.s32", x, y, z), ref_bfe(x, y, z, 32, true))                                 \
  X(bfe_u64, ASM3L("bfe.u64", a, y, z), ref_bfe(a, y, z, 64, false))                               \
  X(bfe_s64, ASM3L("bfe.s64", a, y, z), ref_bfe(a, y, z, 64, true))                                \
  X(bfi_b32, ([&] {                                                                                \
      uint32_t r_;                                                                                 \
      asm volatile("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r_) : "r"(x), "r"(y), "r"(z), "r"(x ^ z)); \
      return r_;                                                                                   \
    }()),                                                                                          \
    ref_bfi(x, y, z, x ^ z, 32))                                                                   \
  X(bfi_b64, ([&] {                                                                                \
      uint64_t r_;                                                                                 \
      asm volatile("bfi.b64 %0, %1, %2, %3, %4;" : "=l"(r_) : "l"(a), "l"(b), "r"(y), "r"(z));     \
      return r_;                                                                                   \
    }()),                                                                                          \
    ref_bfi(a, b, y, z, 64))                                                                       \
  X(bfind_u, ([&] {                                                                                \
      uint32_t r_;                                                                                 \
      asm volatile("bfind.u32 %0, %1;" : "=r"(r_) : "r"(x));                                       \
      return r_;                                                                                   \
    }()),                                                                                          \
    x == 0 ? ~0u : 31 - ref_clz(x, 32))                                                            \
  X(bfind_s, ([&] {                                                                                \
      uint32_t r_;                                                                                 \
      asm volatile("bfind.s32 %0, %1;" : "=r"(r_) : "r"(x));                                       \
      return r_;                                                                                   \
    }()),                                                                                          \
    (x ^ (uint32_t)((int)x >> 31)) == 0 ? ~0u : 31 - ref_clz(x ^ (uint32_t)((int)x >> 31), 32))    \
  X(lop3_96, ([&] {                                                                                \
      uint32_t r_;                                                                                 \
      asm volatile("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r_) : "r"(x), "r"(y), "r"(z));          \
      return r_;                                                                                   \
    }()),                                                                                          \
    x ^ y ^ z)                                                                                     \
  X(lop3_ca, ([&] {                                                                                \
      uint32_t r_;                                                                                 \
      asm volatile("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r_) : "r"(x), "r"(y), "r"(z));          \
      return r_;                                                                                   \
    }()),                                                                                          \
    (x & y) | (~x & z))                                                                            \
  X(carries, ([&] {                                                                                \
      uint32_t l_, m_, h_;                                                                         \
      asm volatile("add.cc.u32 %0, %3, %4;\n\taddc.cc.u32 %1, %4, %5;\n\taddc.u32 %2, %5, %3;"     \
                   : "=r"(l_), "=r"(m_), "=r"(h_)                                                  \
                   : "r"(x), "r"(y), "r"(z));                                                      \
      return (uint64_t)h_ << 32 | (m_ ^ l_);                                                       \
    }()),                                                                                          \
    ([&] {                                                                                         \
      const uint64_t l_ = (uint64_t)x + y, m_ = (uint64_t)y + z + (l_ >> 32);                      \
      return (uint64_t)(uint32_t)(z + x + (m_ >> 32)) << 32 | ((uint32_t)m_ ^ (uint32_t)l_);       \
    }()))                                                                                          \
  X(borrows, ([&] {                                                                                \
      uint32_t l_, h_;                                                                             \
      asm volatile("sub.cc.u32 %0, %2, %3;\n\tsubc.u32 %1, %3, %4;"                                \
                   : "=r"(l_), "=r"(h_)                                                            \
                   : "r"(x), "r"(y), "r"(z));                                                      \
      return (uint64_t)h_ << 32 | l_;                                                              \
    }()),                                                                                          \
    (uint64_t)(y - z - (x < y)) << 32 | (x - y))                                                   \
  X(madc, ([&] {                                                                                   \
      uint32_t l_, h_;                                                                             \
      asm volatile("mad.lo.cc.u32 %0, %2, %3, %4;\n\tmadc.hi.u32 %1, %2, %3, %4;"                  \
                   : "=r"(l_), "=r"(h_)                                                            \
                   : "r"(x), "r"(y), "r"(z));                                                      \
      return (uint64_t)h_ << 32 | l_;                                                              \
    }()),                                                                                          \
    (uint64_t)(uint32_t)(((uint64_t)x * y >> 32) + z + (((uint64_t)(uint32_t)(x * y) + z) >> 32))  \
            << 32 |                                                                                \
        (x * y + z))

#define VIDEO(X)                                                                                  \
  SIMD(X, vadd2, 16, false, p + q)                                                                \
  SIMD(X, vadd4, 8, false, p + q)                                                                 \
  SIMD(X, vsub2, 16, false, p - q)                                                                \
  SIMD(X, vsub4, 8, false, p - q)                                                                 \
  SIMD(X, vaddss2, 16, true, clamp_to(p + q, 16, true))                                           \
  SIMD(X, vaddss4, 8, true, clamp_to(p + q, 8, true))                                             \
  SIMD(X, vaddus2, 16, false, clamp_to(p + q, 16, false))                                         \
  SIMD(X, vaddus4, 8, false, clamp_to(p + q, 8, false))                                           \
  SIMD(X, vsubss2, 16, true, clamp_to(p - q, 16, true))                                           \
  SIMD(X, vsubss4, 8, true, clamp_to(p - q, 8, true))                                             \
  SIMD(X, vsubus2, 16, false, clamp_to(p - q, 16, false))                                         \
  SIMD(X, vsubus4, 8, false, clamp_to(p - q, 8, false))                                           \
  SIMD(X, vavgs2, 16, true, (p + q + (p + q >= 0)) >> 1)                                          \
  SIMD(X, vavgu2, 16, false, (p + q + 1) >> 1)                                                    \
  SIMD(X, vavgu4, 8, false, (p + q + 1) >> 1)                                                     \
  SIMD(X, vhaddu2, 16, false, (p + q) >> 1)                                                       \
  SIMD(X, vhaddu4, 8, false, (p + q) >> 1)                                                        \
  SIMD(X, vabsdiffs2, 16, true, p > q ? p - q : q - p)                                            \
  SIMD(X, vabsdiffs4, 8, true, p > q ? p - q : q - p)                                             \
  SIMD(X, vabsdiffu2, 16, false, p > q ? p - q : q - p)                                           \
  SIMD(X, vabsdiffu4, 8, false, p > q ? p - q : q - p)                                            \
  SIMD(X, vmaxs2, 16, true, p > q ? p : q)                                                        \
  SIMD(X, vmaxs4, 8, true, p > q ? p : q)                                                         \
  SIMD(X, vmaxu2, 16, false, p > q ? p : q)                                                       \
  SIMD(X, vmaxu4, 8, false, p > q ? p : q)                                                        \
  SIMD(X, vmins2, 16, true, p < q ? p : q)                                                        \
  SIMD(X, vmins4, 8, true, p < q ? p : q)                                                         \
  SIMD(X, vminu2, 16, false, p < q ? p : q)                                                       \
  SIMD(X, vminu4, 8, false, p < q ? p : q)                                                        \
  SIMD(X, vcmpeq2, 16, false, p == q ? -1 : 0)                                                    \
  SIMD(X, vcmpeq4, 8, false, p == q ? -1 : 0)                                                     \
  SIMD(X, vcmpgts2, 16, true, p > q ? -1 : 0)                                                     \
  SIMD(X, vcmpgts4, 8, true, p > q ? -1 : 0)                                                      \
  SIMD(X, vcmpleu2, 16, false, p <= q ? -1 : 0)                                                   \
  SIMD(X, vcmpltu4, 8, false, p < q ? -1 : 0)                                                     \
  SIMD(X, vsetne2, 16, false, p != q)                                                             \
  SIMD(X, vsetges4, 8, true, p >= q)                                                              \
  X(vsads4, __vsads4(x, y), ([&] {                                                                \
      uint32_t s_ = 0;                                                                            \
      for (int i = 0; i < 4; ++i) s_ += (uint32_t)abs(part(x, 8, i, true) - part(y, 8, i, true)); \
      return s_;                                                                                  \
    }()))                                                                                         \
  X(vsadu2, __vsadu2(x, y), ([&] {                                                                \
      uint32_t s_ = 0;                                                                            \
      for (int i = 0; i < 2; ++i)                                                                 \
        s_ += (uint32_t)abs(part(x, 16, i, false) - part(y, 16, i, false));                       \
      return s_;                                                                                  \
    }()))                                                                                         \
  X(vneg4, __vneg4(x), parts(x, x, 8, false, [](int p, int) { return -p; }))                      \
  X(vnegss2, __vnegss2(x),                                                                        \
    parts(x, x, 16, true, [](int p, int) { return clamp_to(-p, 16, true); }))                     \
  X(vabs4, __vabs4(x), parts(x, x, 8, true, [](int p, int) { return abs(p); }))                   \
  X(vabsss2, __vabsss2(x),                                                                        \
    parts(x, x, 16, true, [](int p, int) { return clamp_to(abs(p), 16, true); }))                 \
  X(viaddmax, __viaddmax_s32((int)x, (int)y, (int)z),                                             \
    (uint32_t)((int)(x + y) > (int)z ? (int)(x + y) : (int)z))                                    \
  X(vimin3u, __vimin3_u32(x, y, z), (x < y ? x : y) < z ? (x < y ? x : y) : z)                    \
  X(vimax3relu, __vimax3_s32_relu((int)x, (int)y, (int)z), (uint32_t)([&] {                       \
      int m_ = (int)x > (int)y ? (int)x : (int)y;                                                 \
      m_ = m_ > (int)z ? m_ : (int)z;                                                             \
      return m_ > 0 ? m_ : 0;                                                                     \
    }()))

#define ROUNDED(X, mode, fe)                                         \
  X(fadd_##mode, __fadd_##mode(f, g), round_op(fe, '+', f, g, h))    \
  X(fsub_##mode, __fsub_##mode(f, g), round_op(fe, '-', f, g, h))    \
  X(fmul_##mode, __fmul_##mode(f, g), round_op(fe, '*', f, g, h))    \
  X(fdiv_##mode, __fdiv_##mode(f, g), round_op(fe, '/', f, g, h))    \
  X(fsqrt_##mode, __fsqrt_##mode(f), round_op(fe, 'q', f, g, h))     \
  X(frcp_##mode, __frcp_##mode(f), round_op(fe, '/', 1.0f, f, h))    \
  X(fmaf_##mode, __fmaf_##mode(f, g, h), round_op(fe, 'f', f, g, h)) \
  X(dadd_##mode, __dadd_##mode(d, e), round_op(fe, '+', d, e, k))    \
  X(dsub_##mode, __dsub_##mode(d, e), round_op(fe, '-', d, e, k))    \
  X(dmul_##mode, __dmul_##mode(d, e), round_op(fe, '*', d, e, k))    \
  X(ddiv_##mode, __ddiv_##mode(d, e), round_op(fe, '/', d, e, k))    \
  X(dsqrt_##mode, __dsqrt_##mode(d), round_op(fe, 'q', d, e, k))     \
  X(drcp_##mode, __drcp_##mode(d), round_op(fe, '/', 1.0, d, k))     \
  X(fma_##mode, __fma_##mode(d, e, k), round_op(fe, 'f', d, e, k))
#define REALS(X)                                                                    \
  ROUNDED(X, rn, FE_TONEAREST)                                                      \
  ROUNDED(X, rz, FE_TOWARDZERO)                                                     \
  ROUNDED(X, ru, FE_UPWARD)                                                         \
  ROUNDED(X, rd, FE_DOWNWARD)                                                       \
  X(fmin, fminf(f, g), least(f, g, false))                                          \
  X(fmax, fmaxf(f, g), least(f, g, true))                                           \
  X(dmin, fmin(d, e), least(d, e, false))                                           \
  X(ftz_add, ([&] {                                                                 \
      float r_;                                                                     \
      asm volatile("add.ftz.f32 %0, %1, %2;" : "=f"(r_) : "f"(f), "f"(g));          \
      return r_;                                                                    \
    }()),                                                                           \
    real(ref_flush(ref_flush(f) + ref_flush(g))))                                   \
  X(sat_add, ([&] {                                                                 \
      float r_;                                                                     \
      asm volatile("add.sat.f32 %0, %1, %2;" : "=f"(r_) : "f"(f), "f"(g));          \
      return r_;                                                                    \
    }()),                                                                           \
    ([&] {                                                                          \
      const float s_ = f + g;                                                       \
      return word(s_ != s_ || s_ < 0 ? 0.0f : s_ > 1 ? 1.0f : s_ == 0 ? 0.0f : s_); \
    }()))                                                                           \
  X(copysign, copysignf(f, g), real(copysignf(f, g)))                               \
  X(trunc, truncf(f), real(truncf(f)))                                              \
  X(rint, rint(d), real(rint(d)))

#define CONVERSIONS_OF(X, mode, fe)                                                      \
  X(f2i_##mode, __float2int_##mode(f), (to_int<int32_t>(fe, f)))                         \
  X(f2u_##mode, __float2uint_##mode(f), (to_int<uint32_t>(fe, f)))                       \
  X(f2ll_##mode, __float2ll_##mode(f), (to_int<int64_t>(fe, f)))                         \
  X(f2ull_##mode, __float2ull_##mode(f), (to_int<uint64_t>(fe, f)))                      \
  X(d2i_##mode, __double2int_##mode(d), (to_int<int32_t>(fe, d)))                        \
  X(d2u_##mode, __double2uint_##mode(d), (to_int<uint32_t>(fe, d)))                      \
  X(d2ll_##mode, __double2ll_##mode(d), (to_int<int64_t>(fe, d)))                        \
  X(d2ull_##mode, __double2ull_##mode(d), (to_int<uint64_t>(fe, d)))                     \
  X(d2f_##mode, __double2float_##mode(d), ([&] {                                         \
      fesetround(fe);                                                                    \
      volatile double p_ = d;                                                            \
      volatile float r_ = (float)p_;                                                     \
      fesetround(FE_TONEAREST);                                                          \
      return real((float)r_);                                                            \
    }()))                                                                                \
  X(i2f_##mode, __int2float_##mode((int)x), (from_int<float>(fe, (int)x)))               \
  X(u2f_##mode, __uint2float_##mode(x), (from_int<float>(fe, x)))                        \
  X(ll2f_##mode, __ll2float_##mode((long long)a), (from_int<float>(fe, (long long)a)))   \
  X(ull2f_##mode, __ull2float_##mode(a), (from_int<float>(fe, a)))                       \
  X(ll2d_##mode, __ll2double_##mode((long long)a), (from_int<double>(fe, (long long)a))) \
  X(ull2d_##mode, __ull2double_##mode(a), (from_int<double>(fe, a)))
#define CONVERSIONS(X)                 \
  CONVERSIONS_OF(X, rn, FE_TONEAREST)  \
  CONVERSIONS_OF(X, rz, FE_TOWARDZERO) \
  CONVERSIONS_OF(X, ru, FE_UPWARD)     \
  CONVERSIONS_OF(X, rd, FE_DOWNWARD)

#define ALL(X) INTEGERS(X) VIDEO(X) REALS(X) CONVERSIONS(X)

enum Row {
#define NAME(name, device, host) k_##name,
  ALL(NAME)
#undef NAME
      kRows
};
static const char* const kNames[] = {
#define NAME(name, device, host) #name,
    ALL(NAME)
#undef NAME
};

__device__ inline uint64_t put(float v) { return v != v ? 0x7fffffffu : __float_as_uint(v); }
__device__ inline uint64_t put(double v) {
  return v != v ? 0x7fffffffffffffffull : (uint64_t)__double_as_longlong(v);
}
__device__ inline uint64_t put(int v) { return (uint32_t)v; }
__device__ inline uint64_t put(unsigned v) { return v; }
__device__ inline uint64_t put(long long v) { return (uint64_t)v; }
__device__ inline uint64_t put(unsigned long long v) { return v; }
__device__ inline uint64_t put(unsigned long v) { return v; }

__global__ void rows(const uint64_t* in, uint64_t* out, int row, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint64_t a = in[i], b = in[i + 1];
  const uint32_t x = (uint32_t)a, y = (uint32_t)b, z = (uint32_t)(a >> 32);
  const float f = __uint_as_float(x), g = __uint_as_float(y), h = __uint_as_float(z);
  const double d = __longlong_as_double((long long)a), e = __longlong_as_double((long long)b),
               k = __longlong_as_double((long long)(a ^ (b >> 1)));
  uint64_t r = 0;
  switch (row) {
#define CASE(name, device, host) \
  case k_##name:                 \
    r = put(device);             \
    break;
    ALL(CASE)
#undef CASE
  }
  out[i] = r;
}

static uint64_t reference(int row, uint64_t a, uint64_t b) {
  const uint32_t x = (uint32_t)a, y = (uint32_t)b, z = (uint32_t)(a >> 32);
  const float f = same<float>(x), g = same<float>(y), h = same<float>(z);
  const double d = same<double>(a), e = same<double>(b), k = same<double>(a ^ (b >> 1));
  (void)x, (void)y, (void)z, (void)f, (void)g, (void)h, (void)d, (void)e, (void)k;
  switch (row) {
#define CASE(name, device, host) \
  case k_##name:                 \
    return (uint64_t)(host);
    ALL(CASE)
#undef CASE
  }
  return 0;
}

// Numbers where something happens, and random ones of many sizes.
static std::vector<uint64_t> inputs() {
  const float edges[] = {0.0f,     -0.0f,    1.0f,      -1.0f,       0.5f,          1.5f,
                         2.5f,     -2.5f,    1e-40f,    -1e-45f,     FLT_MIN,       FLT_MAX,
                         -FLT_MAX, INFINITY, -INFINITY, NAN,         2147483648.0f, 4294967296.0f,
                         9.3e18f,  -9.3e18f, 1.9e19f,   0.49999997f, 16777217.0f};
  const double doubles[] = {0.0,
                            -0.0,
                            1.0,
                            0.5,
                            1.5,
                            -2.5,
                            1e-310,
                            DBL_MIN,
                            DBL_MAX,
                            (double)INFINITY,
                            (double)NAN,
                            2147483647.5,
                            4294967295.5,
                            9.2233720368547758e18,
                            1.8446744073709552e19,
                            -1e300,
                            1e-300,
                            3.4028235677973366e38,
                            1e-46};
  std::vector<uint64_t> v;
  for (float p : edges)
    for (float q : edges) v.push_back(word(p) | word(q) << 32);
  for (double p : doubles) {
    v.push_back(word(p));
    for (double q : doubles) v.push_back(word(q)), v.push_back(word(p));
  }
  for (uint64_t p :
       {0ull, 1ull, ~0ull, 1ull << 63, 1ull << 31, 0x7fffffffull, 0x7fffffffffffffffull,
        0x8000000080000000ull, 0x8080808080808080ull, 0x7f807f8000ff00ffull})
    for (int s = 0; s < 64; s += 7) v.push_back(p >> s ^ (uint64_t)s);
  for (uint64_t i = 0; i < 1200; ++i) {
    uint64_t w = scramble64(i * 3 + 1);
    if (i % 4 == 1) w &= 0x1f0000001full;
    if (i % 4 == 2) w = word(ldexp((double)(int64_t)w, (int)(i % 160) - 140));
    if (i % 4 == 3) w = word((float)ldexp((double)(int32_t)w, (int)(i % 80) - 60)) | w << 32;
    v.push_back(w);
  }
  return v;
}

int main() {
  const std::vector<uint64_t> in = inputs();
  const int n = (int)in.size() - 1;
  DeviceVector<uint64_t> device(in), out((size_t)n);
  int wrong = 0;
  for (int row = 0; row < kRows; ++row) {
    rows<<<(n + 127) / 128, 128>>>(device.get(), out.get(), row, n);
    CHECK(cudaDeviceSynchronize());
    const std::vector<uint64_t> got = out.copy();
    for (int i = 0, shown = 0; i < n && shown < 3; ++i) {
      const uint64_t want = reference(row, in[(size_t)i], in[(size_t)i + 1]);
      if (got[(size_t)i] == want) continue;
      fprintf(stderr, "%s of %016llx, %016llx: %016llx instead of %016llx\n", kNames[row],
              (unsigned long long)in[(size_t)i], (unsigned long long)in[(size_t)i + 1],
              (unsigned long long)got[(size_t)i], (unsigned long long)want);
      ++shown;
      ++wrong;
    }
  }
  if (wrong != 0) return 1;
  return passed();
}
