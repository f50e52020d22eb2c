// Integer and logical instructions, moves, and comparisons of every type.
#include <initializer_list>

#include "ptx/lanes/lanes.h"

namespace simgpu::ptx::SIMGPU_ARCH {

namespace {

template <class T>
struct Traits;
#define SIMGPU_TRAITS(T, UT, ST, WT, N)  \
  template <>                            \
  struct Traits<T> {                     \
    using U = UT;                        \
    using S = ST;                        \
    using W = WT;                        \
    static constexpr unsigned kBits = N; \
  };
SIMGPU_TRAITS(uint16_t, uint16_t, int16_t, uint32_t, 16)
SIMGPU_TRAITS(int16_t, uint16_t, int16_t, int32_t, 16)
SIMGPU_TRAITS(uint32_t, uint32_t, int32_t, uint64_t, 32)
SIMGPU_TRAITS(int32_t, uint32_t, int32_t, int64_t, 32)
SIMGPU_TRAITS(uint64_t, uint64_t, int64_t, unsigned __int128, 64)
SIMGPU_TRAITS(int64_t, uint64_t, int64_t, __int128, 64)

template <class T>
using U = typename Traits<T>::U;
template <class T>
using W = typename Traits<T>::W;
template <class T>
constexpr bool kSigned = (T)-1 < (T)0;
template <class T>
constexpr T kLeast = kSigned<T> ? (T)((U<T>)1 << (Traits<T>::kBits - 1)) : (T)0;

#define SIMGPU_ONE(Name, expr)            \
  template <class T>                      \
  struct Name {                           \
    using R = T;                          \
    using A = T;                          \
    static T f(T a) { return (T)(expr); } \
  };
#define SIMGPU_TWO(Name, expr)                 \
  template <class T>                           \
  struct Name {                                \
    using R = T;                               \
    using A = T;                               \
    using B = T;                               \
    static T f(T a, T b) { return (T)(expr); } \
  };
#define SIMGPU_THREE(Name, expr)                    \
  template <class T>                                \
  struct Name {                                     \
    using R = T;                                    \
    using A = T;                                    \
    using B = T;                                    \
    using C = T;                                    \
    static T f(T a, T b, T c) { return (T)(expr); } \
  };

SIMGPU_TWO(Add, (U<T>)a + (U<T>)b)
SIMGPU_TWO(Sub, (U<T>)a - (U<T>)b)
template <class T>
inline T mul_lo(T a, T b) {
  if constexpr (sizeof(T) == 2)
    return (T)((uint32_t)(U<T>)a * (uint32_t)(U<T>)b);
  else
    return (T)((U<T>)a * (U<T>)b);
}
template <class T>
inline T mul_hi(T a, T b) {
  return (T)(((W<T>)a * (W<T>)b) >> Traits<T>::kBits);
}
SIMGPU_TWO(Mul, mul_lo(a, b))
SIMGPU_TWO(MulHi, mul_hi(a, b))
SIMGPU_THREE(Mad, (U<T>)mul_lo(a, b) + (U<T>)c)
SIMGPU_THREE(MadHi, (U<T>)mul_hi(a, b) + (U<T>)c)
SIMGPU_TWO(And, a& b)
SIMGPU_TWO(Or, a | b)
SIMGPU_TWO(Xor, a ^ b)
SIMGPU_TWO(Min, a < b ? a : b)
SIMGPU_TWO(Max, a > b ? a : b)
SIMGPU_THREE(Min3, (a < b ? a : b) < c ? (a < b ? a : b) : c)
SIMGPU_THREE(Max3, (a > b ? a : b) > c ? (a > b ? a : b) : c)
SIMGPU_TWO(MinRelu, (a < b ? a : b) < 0 ? 0 : (a < b ? a : b))
SIMGPU_TWO(MaxRelu, (a > b ? a : b) < 0 ? 0 : (a > b ? a : b))
SIMGPU_ONE(Not, ~a)
SIMGPU_ONE(Cnot, a == 0 ? 1 : 0)
SIMGPU_ONE(Neg, (U<T>)0 - (U<T>)a)
SIMGPU_ONE(Abs, a < 0 ? (U<T>)0 - (U<T>)a : (U<T>)a)
SIMGPU_ONE(Move, a)
// Division by zero gives all ones and the dividend, as on the hardware; the one overflow wraps.
SIMGPU_TWO(Div, b == 0 ? (T)-1 : (kSigned<T> && b == (T)-1) ? (T)((U<T>)0 - (U<T>)a) : (T)(a / b))
SIMGPU_TWO(Rem, b == 0 ? a : (kSigned<T> && b == (T)-1) ? (T)0 : (T)(a % b))
SIMGPU_THREE(Sad, (U<T>)c + (a < b ? (U<T>)b - (U<T>)a : (U<T>)a - (U<T>)b))

template <class T>
struct MulWide {
  using R = W<T>;
  using A = T;
  using B = T;
  static R f(T a, T b) { return (R)a * (R)b; }
};
template <class T>
struct MadWide {
  using R = W<T>;
  using A = T;
  using B = T;
  using C = W<T>;
  static R f(T a, T b, R c) {
    using UW = U<R>;
    return (R)((UW)((R)a * (R)b) + (UW)c);
  }
};

struct AddSat {
  using R = int32_t;
  using A = int32_t;
  using B = int32_t;
  static int32_t clamp(int64_t v) {
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
  }
  static int32_t f(int32_t a, int32_t b) { return clamp((int64_t)a + b); }
};
struct SubSat : AddSat {
  static int32_t f(int32_t a, int32_t b) { return clamp((int64_t)a - b); }
};
struct MadHiSat : AddSat {
  using C = int32_t;
  static int32_t f(int32_t a, int32_t b, int32_t c) {
    return clamp((int64_t)mul_hi<int32_t>(a, b) + c);
  }
};

// 24-bit products: the low 24 bits of each, sign-extended for signed types.
template <class T, bool Hi>
struct Mul24 {
  using R = T;
  using A = T;
  using B = T;
  static W<T> product(T a, T b) {
    T x = (T)((U<T>)a << 8) >> 8, y = (T)((U<T>)b << 8) >> 8;
    return (W<T>)x * (W<T>)y;
  }
  static T f(T a, T b) { return (T)(product(a, b) >> (Hi ? 16 : 0)); }
};
template <class T, bool Hi>
struct Mad24 {
  using R = T;
  using A = T;
  using B = T;
  using C = T;
  static T f(T a, T b, T c) { return (T)((U<T>)Mul24<T, Hi>::f(a, b) + (U<T>)c); }
};

// Shift counts are 32-bit and clamped to the width.
template <class T>
struct Shl {
  using R = T;
  using A = T;
  using B = uint32_t;
  static T f(T a, uint32_t n) {
    constexpr unsigned w = Traits<T>::kBits;
    if constexpr (w == 16)
      return (T)(n > 15 ? 0u : (uint32_t)(U<T>)a << (n & 15));
    else
      return (T)(n >= w ? (U<T>)0 : (U<T>)a << (n & (w - 1)));
  }
};
template <class T>
struct Shr {
  using R = T;
  using A = T;
  using B = uint32_t;
  static T f(T a, uint32_t n) {
    constexpr unsigned w = Traits<T>::kBits;
    if constexpr (kSigned<T>)
      return (T)(a >> (n >= w ? w - 1 : n));
    else
      return (T)(n >= w ? (T)0 : (T)(a >> (n & (w - 1))));
  }
};
template <bool Left, bool Clamp>
struct Shf {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  using C = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b, uint32_t n) {
    n = Clamp ? (n > 32 ? 32 : n) : n & 31;
    uint64_t v = (uint64_t)b << 32 | a;
    return Left ? (uint32_t)((v << n) >> 32) : (uint32_t)(v >> n);
  }
};

template <class T>
struct Popc {
  using R = uint32_t;
  using A = T;
  static uint32_t f(T a) {
    return sizeof(T) == 8 ? __builtin_popcountll(a) : __builtin_popcount(a);
  }
};
template <class T>
struct Clz {
  using R = uint32_t;
  using A = T;
  static uint32_t f(T a) {
    if (a == 0) return sizeof(T) * 8;
    return sizeof(T) == 8 ? __builtin_clzll(a) : __builtin_clz(a);
  }
};
template <class T, bool ShiftAmount>
struct Bfind {
  using R = uint32_t;
  using A = T;
  static uint32_t f(T a) {
    if (kSigned<T> && a < 0) a = ~a;
    if (a == 0) return ~0u;
    uint32_t lead = Clz<U<T>>::f((U<T>)a);
    return ShiftAmount ? lead : (uint32_t)sizeof(T) * 8 - 1 - lead;
  }
};
template <class T>
struct Brev {
  using R = T;
  using A = T;
  static T f(T a) {
    uint64_t v = a;
    v = (v >> 1 & 0x5555555555555555ull) | (v & 0x5555555555555555ull) << 1;
    v = (v >> 2 & 0x3333333333333333ull) | (v & 0x3333333333333333ull) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0full) | (v & 0x0f0f0f0f0f0f0f0full) << 4;
    v = __builtin_bswap64(v);
    return (T)(sizeof(T) == 8 ? v : v >> 32);
  }
};
template <class T>
struct Bfe {
  using R = T;
  using A = T;
  using B = uint32_t;
  using C = uint32_t;
  static T f(T a, uint32_t pos, uint32_t len) {
    constexpr unsigned w = Traits<T>::kBits;
    pos &= 255;
    len &= 255;
    if (len == 0) return 0;
    if (pos >= w) return kSigned<T> && a < 0 ? (T)-1 : (T)0;
    if (pos + len > w) len = w - pos;
    return (T)((T)((U<T>)a << (w - len - pos)) >> (w - len));
  }
};
// a is inserted into b.
template <class T>
inline T insert(T a, T b, uint32_t pos, uint32_t len) {
  constexpr unsigned w = Traits<T>::kBits;
  pos &= 255;
  len &= 255;
  if (len == 0 || pos >= w) return b;
  if (pos + len > w) len = w - pos;
  U<T> mask = (len == w ? ~(U<T>)0 : (((U<T>)1 << len) - 1)) << pos;
  return (T)((b & ~mask) | (((U<T>)a << pos) & mask));
}
template <class T>
const Ins* bfi(Ctx& c, const Ins* i) {
  auto* d = slot<T>(c, i->d);
  const auto* a = slot<T>(c, i->a);
  const auto* b = slot<T>(c, i->b);
  const uint32_t* p = reg32(c, i->c);
  const uint32_t* n = reg32(c, i->e);
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) d[l] = insert<T>(a[l], b[l], p[l], n[l]);
  return i + 1;
}

struct Fns {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  using C = int32_t;
  static uint32_t f(uint32_t mask, uint32_t base, int32_t offset) {
    if (base > 31) return ~0u;
    int step = offset < 0 ? -1 : 1;
    int left = offset < 0 ? -offset : offset;
    if (left == 0) return mask >> base & 1 ? base : ~0u;
    for (int p = (int)base; p >= 0 && p < 32; p += step)
      if (mask >> p & 1 && --left == 0) return (uint32_t)p;
    return ~0u;
  }
};

struct Prmt {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  using C = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t v = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (unsigned k = 0; k < 4; ++k) {
      uint32_t s = c >> (4 * k) & 15;
      uint32_t byte = (uint32_t)(v >> (8 * (s & 7))) & 255;
      if (s & 8) byte = byte & 128 ? 255 : 0;
      r |= byte << (8 * k);
    }
    return r;
  }
};
// The named modes are tables of selectors, one row per value of the control's two low bits.
template <unsigned Mode>
struct PrmtMode {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  using C = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    static constexpr uint16_t kSelect[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
        {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
        {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
        {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
        {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
        {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
    };
    return Prmt::f(a, b, kSelect[Mode][c & 3]);
  }
};

template <class A4, class B4>
struct Dp4a {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  using C = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    for (unsigned k = 0; k < 4; ++k)
      c += (uint32_t)((int32_t)(A4)(a >> (8 * k)) * (int32_t)(B4)(b >> (8 * k)));
    return c;
  }
};
template <class A2, class B1, bool Hi>
struct Dp2a {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  using C = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b, uint32_t c) {
    if (Hi) b >>= 16;
    for (unsigned k = 0; k < 2; ++k)
      c += (uint32_t)((int32_t)(A2)(a >> (16 * k)) * (int32_t)(B1)(b >> (8 * k)));
    return c;
  }
};

template <bool Clamp>
struct Bmsk {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b) {
    if (!Clamp) {
      a &= 31;
      b &= 31;
    }
    if (a > 31 || b == 0) return 0;
    uint32_t ones = b > 31 ? ~0u : (1u << b) - 1;
    return ones << a;
  }
};
template <class T, bool Clamp>
struct Szext {
  using R = T;
  using A = T;
  using B = uint32_t;
  static T f(T a, uint32_t n) {
    if (!Clamp) n &= 31;
    if (n == 0) return 0;
    if (n > 31) return a;
    return (T)((T)((uint32_t)a << (32 - n)) >> (32 - n));
  }
};

const Ins* lop3(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  const uint32_t* e = reg32(c, i->c);
  uint32_t m[8];
  for (unsigned k = 0; k < 8; ++k) m[k] = i->imm >> k & 1 ? ~0u : 0;
  const uint32_t m0 = m[0], m1 = m[1], m2 = m[2], m3 = m[3], m4 = m[4], m5 = m[5], m6 = m[6],
                 m7 = m[7];
  const int32_t* on = c.lanes;
  SIMGPU_LANES {
    uint32_t x = a[l], y = b[l], z = e[l];
    uint32_t hi = (y & ((z & m7) | (~z & m6))) | (~y & ((z & m5) | (~z & m4)));
    uint32_t lo = (y & ((z & m3) | (~z & m2))) | (~y & ((z & m1) | (~z & m0)));
    uint32_t r = (x & hi) | (~x & lo);
    d[l] = on[l] ? r : d[l];
  }
  return i + 1;
}

// add.cc, addc, sub.cc, subc, mad.lo/hi.cc, madc: the flag is register e, 0 or 1 (a borrow for
// subtraction).
enum CarryKind { kCarryAdd, kCarrySub, kCarryMadLo, kCarryMadHi };
template <class T, CarryKind K, bool In, bool Out>
const Ins* carry(Ctx& c, const Ins* i) {
  using D = W<T>;
  auto* d = slot<T>(c, i->d);
  const auto* a = slot<T>(c, i->a);
  const auto* b = slot<T>(c, i->b);
  const auto* e = K >= kCarryMadLo ? slot<T>(c, i->c) : nullptr;
  uint32_t* flag = reg32(c, i->e);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    T x = (T)a[l], y = (T)b[l];
    if (K == kCarryMadLo) {
      x = mul_lo<T>(x, y);
      y = (T)e[l];
    } else if (K == kCarryMadHi) {
      x = mul_hi<T>(x, y);
      y = (T)e[l];
    }
    D ux = (D)(U<T>)x, uy = (D)(U<T>)y;
    using UD = U<T>;
    D in = In ? flag[l] : 0;
    unsigned __int128 wide =
        K == kCarrySub ? (unsigned __int128)ux - uy - in : (unsigned __int128)ux + uy + in;
    d[l] = (UD)wide;
    if (Out) flag[l] = (uint32_t)(wide >> Traits<T>::kBits) & 1;
  }
  return i + 1;
}
template <class T, CarryKind K>
Fn carry_pick(const Key& k) {
  if (k.carry_in) return k.carry_out ? carry<T, K, true, true> : carry<T, K, true, false>;
  return carry<T, K, false, true>;
}

// Two 16-bit lanes in a word.
template <class O>
struct Pair16 {
  using R = uint32_t;
  using A = uint32_t;
  using B = uint32_t;
  static uint32_t f(uint32_t a, uint32_t b) {
    using T = typename O::A;
    return (uint32_t)(uint16_t)O::f((T)a, (T)b) |
           (uint32_t)(uint16_t)O::f((T)(a >> 16), (T)(b >> 16)) << 16;
  }
};

// Video instructions on two or four parts of a word. sub: bits 0..2 operation, 3 a signed, 4 b
// signed, 5 result signed, 6 saturate, 7 add up the parts and c, 8 four parts.
enum VideoOp { kVideoAdd, kVideoSub, kVideoAverage, kVideoAbsdiff, kVideoMin, kVideoMax };
const Ins* video(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  const uint32_t* e = reg32(c, i->c);
  const unsigned s = i->sub, width = s & 256 ? 8 : 16;
  const bool signed_result = s & 32;
  const int32_t top = signed_result ? (1 << (width - 1)) - 1 : (1 << width) - 1;
  const int32_t bottom = signed_result ? -(1 << (width - 1)) : 0;
  auto part = [&](uint32_t v, unsigned at, bool is_signed) {
    int32_t x = (int32_t)(v << (32 - width - at));
    return is_signed ? x >> (32 - width) : (int32_t)((uint32_t)x >> (32 - width));
  };
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint32_t result = 0, sum = e[l];
    for (unsigned at = 0; at < 32; at += width) {
      int32_t x = part(a[l], at, s & 8), y = part(b[l], at, s & 16), r = 0;
      switch (s & 7) {
        case kVideoAdd:
          r = x + y;
          break;
        case kVideoSub:
          r = x - y;
          break;
        case kVideoAverage:
          r = (x + y + (x + y >= 0 ? 1 : 0)) >> 1;
          break;
        case kVideoAbsdiff:
          r = x > y ? x - y : y - x;
          break;
        case kVideoMin:
          r = x < y ? x : y;
          break;
        case kVideoMax:
          r = x > y ? x : y;
          break;
      }
      if (s & 64) r = r > top ? top : r < bottom ? bottom : r;
      sum += (uint32_t)r;
      result |= ((uint32_t)r & ((1u << width) - 1)) << at;
    }
    d[l] = s & 128 ? sum : result;
  }
  return i + 1;
}

// ---- comparisons ----

inline float flush(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

template <class T, Cmp C, bool Ftz>
struct Compare {
  using R = bool;
  using A = T;
  using B = T;
  static bool f(T a, T b) {
    if constexpr (Ftz) return compare(flush(a), flush(b), C);
    return compare(a, b, C);
  }
};

template <class O>
const Ins* setp(Ctx& c, const Ins* i) {
  using A = typename O::A;
  uint32_t* d = reg32(c, i->d);
  const auto* a = slot<A>(c, i->a);
  const auto* b = slot<A>(c, i->b);
  if (c.full) {
    SIMGPU_LANES d[l] = O::f(get<A>(a[l]), get<A>(b[l])) ? ~0u : 0u;
  } else {
    const int32_t* m = c.lanes;
    SIMGPU_LANES {
      uint32_t r = O::f(get<A>(a[l]), get<A>(b[l])) ? ~0u : 0u;
      d[l] = m[l] ? r : d[l];
    }
  }
  return i + 1;
}

// setp p|q, a, b, [!]c with and/or/xor; also one result with c. sub: bit 0 c negated; bits 4..
// BoolOp.
template <class O>
const Ins* setp_full(Ctx& c, const Ins* i) {
  using A = typename O::A;
  uint32_t* d = reg32(c, i->d);
  uint32_t* q = i->e == kNone ? nullptr : reg32(c, i->e);
  const auto* a = slot<A>(c, i->a);
  const auto* b = slot<A>(c, i->b);
  const uint32_t* p = i->c == kNone ? nullptr : reg32(c, i->c);
  auto bool_op = (BoolOp)(i->sub >> 4);
  auto join = [&](uint32_t x, uint32_t y) {
    return bool_op == BoolOp::kAnd ? x & y : bool_op == BoolOp::kOr ? x | y : x ^ y;
  };
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint32_t r = O::f(get<A>(a[l]), get<A>(b[l])) ? ~0u : 0u, n = ~r;
    if (p) {
      uint32_t v = i->sub & 1 ? ~p[l] : p[l];
      r = join(r, v);
      n = join(n, v);
    }
    d[l] = r;
    if (q) q[l] = n;
  }
  return i + 1;
}

// set.cmp.dtype: all ones or 1.0f. sub bit 1: float result; c and bool as in setp.
template <class O>
const Ins* set(Ctx& c, const Ins* i) {
  using A = typename O::A;
  uint32_t* d = reg32(c, i->d);
  const auto* a = slot<A>(c, i->a);
  const auto* b = slot<A>(c, i->b);
  const uint32_t* p = i->c == kNone ? nullptr : reg32(c, i->c);
  auto bool_op = (BoolOp)(i->sub >> 4);
  const uint32_t one = i->sub & 2 ? 0x3f800000u : ~0u;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    bool r = O::f(get<A>(a[l]), get<A>(b[l]));
    if (p) {
      bool v = (p[l] != 0) != ((i->sub & 1) != 0);
      r = bool_op == BoolOp::kAnd ? r && v : bool_op == BoolOp::kOr ? r || v : r != v;
    }
    d[l] = r ? one : 0;
  }
  return i + 1;
}

template <class O>
Fn compare_shape(const Key& k) {
  if (k.op == Op::kSet) return set<O>;
  return k.second || k.bool_op != BoolOp::kNo ? setp_full<O> : setp<O>;
}
template <class T, bool Ftz>
Fn compare_pick(const Key& k) {
  switch (k.cmp) {
    case Cmp::kEq:
      return compare_shape<Compare<T, Cmp::kEq, Ftz>>(k);
    case Cmp::kNe:
      return compare_shape<Compare<T, Cmp::kNe, Ftz>>(k);
    case Cmp::kLt:
    case Cmp::kLo:
      return compare_shape<Compare<T, Cmp::kLt, Ftz>>(k);
    case Cmp::kLe:
    case Cmp::kLs:
      return compare_shape<Compare<T, Cmp::kLe, Ftz>>(k);
    case Cmp::kGt:
    case Cmp::kHi:
      return compare_shape<Compare<T, Cmp::kGt, Ftz>>(k);
    case Cmp::kGe:
    case Cmp::kHs:
      return compare_shape<Compare<T, Cmp::kGe, Ftz>>(k);
    default:
      break;
  }
  if constexpr ((T)0.5f != (T)0) {
    switch (k.cmp) {
      case Cmp::kEqu:
        return compare_shape<Compare<T, Cmp::kEqu, Ftz>>(k);
      case Cmp::kNeu:
        return compare_shape<Compare<T, Cmp::kNeu, Ftz>>(k);
      case Cmp::kLtu:
        return compare_shape<Compare<T, Cmp::kLtu, Ftz>>(k);
      case Cmp::kLeu:
        return compare_shape<Compare<T, Cmp::kLeu, Ftz>>(k);
      case Cmp::kGtu:
        return compare_shape<Compare<T, Cmp::kGtu, Ftz>>(k);
      case Cmp::kGeu:
        return compare_shape<Compare<T, Cmp::kGeu, Ftz>>(k);
      case Cmp::kNum:
        return compare_shape<Compare<T, Cmp::kNum, Ftz>>(k);
      case Cmp::kNan:
        return compare_shape<Compare<T, Cmp::kNan, Ftz>>(k);
      default:
        break;
    }
  }
  return nullptr;
}
Fn compare_type(const Key& k) {
  switch (k.t) {
    case Ty::kB16:
    case Ty::kU16:
      return compare_pick<uint16_t, false>(k);
    case Ty::kS16:
      return compare_pick<int16_t, false>(k);
    case Ty::kB32:
    case Ty::kU32:
      return compare_pick<uint32_t, false>(k);
    case Ty::kS32:
      return compare_pick<int32_t, false>(k);
    case Ty::kB64:
    case Ty::kU64:
      return compare_pick<uint64_t, false>(k);
    case Ty::kS64:
      return compare_pick<int64_t, false>(k);
    case Ty::kF32:
      return k.ftz ? compare_pick<float, true>(k) : compare_pick<float, false>(k);
    case Ty::kF64:
      return compare_pick<double, false>(k);
    default:
      return nullptr;
  }
}

// ---- selection and moves ----

template <class T>
const Ins* selp(Ctx& c, const Ins* i) {
  auto* d = slot<T>(c, i->d);
  const auto* a = slot<T>(c, i->a);
  const auto* b = slot<T>(c, i->b);
  const uint32_t* p = reg32(c, i->c);
  if (c.full) {
    SIMGPU_LANES d[l] = p[l] ? a[l] : b[l];
  } else {
    const int32_t* m = c.lanes;
    SIMGPU_LANES {
      auto r = p[l] ? a[l] : b[l];
      d[l] = m[l] ? r : d[l];
    }
  }
  return i + 1;
}
template <class T, class P>
const Ins* slct(Ctx& c, const Ins* i) {
  auto* d = slot<T>(c, i->d);
  const auto* a = slot<T>(c, i->a);
  const auto* b = slot<T>(c, i->b);
  const uint32_t* p = reg32(c, i->c);
  const int32_t* m = c.lanes;
  SIMGPU_LANES {
    auto r = get<P>(p[l]) >= (P)0 ? a[l] : b[l];
    d[l] = m[l] ? r : d[l];
  }
  return i + 1;
}

const Ins* move128(Ctx& c, const Ins* i) {
  uint64_t* d = reg64(c, i->d);
  const uint64_t* a = reg64(c, i->a);
  for (unsigned l = 0; l < 2 * kLanes; ++l)
    if (c.lanes[l & 31]) d[l] = a[l];
  return i + 1;
}

// mov.bN {a, b, ...} <-> register. A 128-bit register is 32 low halves, then 32 high halves.
const Ins* pack2x16(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  const int32_t* m = c.lanes;
  SIMGPU_LANES {
    uint32_t r = (a[l] & 0xffff) | b[l] << 16;
    d[l] = m[l] ? r : d[l];
  }
  return i + 1;
}
const Ins* pack2x32(Ctx& c, const Ins* i) {
  uint64_t* d = reg64(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  const int32_t* m = c.lanes;
  SIMGPU_LANES {
    uint64_t r = (uint64_t)b[l] << 32 | a[l];
    d[l] = m[l] ? r : d[l];
  }
  return i + 1;
}
// Any other shape: list of n registers of `sub` bits each; the whole has n * sub bits.
const Ins* pack(Ctx& c, const Ins* i) {
  const unsigned each = i->sub, total = each * i->n;
  const uint64_t ones = each == 64 ? ~0ull : (1ull << each) - 1;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t part[2] = {0, 0};
    for (unsigned k = 0, bit = 0; k < i->n; ++k, bit += each) {
      uint64_t v = (each == 64 ? reg64(c, i->list[k])[l] : reg32(c, i->list[k])[l]) & ones;
      part[bit >> 6] |= v << (bit & 63);
    }
    if (total <= 32) {
      reg32(c, i->d)[l] = (uint32_t)part[0];
    } else {
      reg64(c, i->d)[l] = part[0];
      if (total == 128) reg64(c, i->d)[l + kLanes] = part[1];
    }
  }
  return i + 1;
}
const Ins* unpack(Ctx& c, const Ins* i) {
  const unsigned each = i->sub, total = each * i->n;
  const uint64_t ones = each == 64 ? ~0ull : (1ull << each) - 1;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t part[2] = {0, 0};
    if (total <= 32) {
      part[0] = reg32(c, i->a)[l];
    } else {
      part[0] = reg64(c, i->a)[l];
      if (total == 128) part[1] = reg64(c, i->a)[l + kLanes];
    }
    for (unsigned k = 0, bit = 0; k < i->n; ++k, bit += each) {
      if (i->list[k] == kNone) continue;
      uint64_t v = part[bit >> 6] >> (bit & 63) & ones;
      if (each == 64)
        reg64(c, i->list[k])[l] = v;
      else
        reg32(c, i->list[k])[l] = (uint32_t)v;
    }
  }
  return i + 1;
}
const Ins* unpack2x32(Ctx& c, const Ins* i) {
  const uint64_t* a = reg64(c, i->a);
  const int32_t* m = c.lanes;
  if (i->list[0] != kNone) {
    uint32_t* d = reg32(c, i->list[0]);
    SIMGPU_LANES d[l] = m[l] ? (uint32_t)a[l] : d[l];
  }
  if (i->list[1] != kNone) {
    uint32_t* d = reg32(c, i->list[1]);
    SIMGPU_LANES d[l] = m[l] ? (uint32_t)(a[l] >> 32) : d[l];
  }
  return i + 1;
}

// ---- addresses ----

template <unsigned Kind>  // 0 shared to generic, 1 local to generic, 2 window to offset, 3
                          // parameter
struct Window {
  using R = uint64_t;
  using A = uint64_t;
  static uint64_t f(uint64_t a) {
    if (Kind == 0) return a >> 48 ? a : kSharedWindow | (uint32_t)a;
    if (Kind == 1) return kLocalWindow | (uint32_t)a;
    if (Kind == 3) return a >> 48 ? a : kParamWindow | (uint32_t)a;
    return (uint32_t)a;
  }
};
const Ins* isspacep(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  const uint64_t* a = reg64(c, i->a);
  const uint64_t want = (uint64_t)i->imm;
  const uint32_t rank = c.block->rank;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    bool yes;
    if (want == 0) {
      yes = a[l] >> 48 == 0;
    } else {
      yes = a[l] >> 48 == want;
      uint32_t owner = (uint32_t)a[l] >> 24;
      if (yes && i->sub) yes = owner == 0 || owner == rank + 1;  // shared::cta
    }
    d[l] = yes ? ~0u : 0;
  }
  return i + 1;
}

template <template <class> class O>
Fn two_int(Ty t) {
  switch (t) {
    case Ty::kB16:
    case Ty::kU16:
      return op2<O<uint16_t>>;
    case Ty::kS16:
      return op2<O<int16_t>>;
    case Ty::kB32:
    case Ty::kU32:
      return op2<O<uint32_t>>;
    case Ty::kS32:
      return op2<O<int32_t>>;
    case Ty::kB64:
    case Ty::kU64:
      return op2<O<uint64_t>>;
    case Ty::kS64:
      return op2<O<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class O>
Fn three_int(Ty t) {
  switch (t) {
    case Ty::kU16:
      return op3<O<uint16_t>>;
    case Ty::kS16:
      return op3<O<int16_t>>;
    case Ty::kB32:
    case Ty::kU32:
      return op3<O<uint32_t>>;
    case Ty::kS32:
      return op3<O<int32_t>>;
    case Ty::kB64:
    case Ty::kU64:
      return op3<O<uint64_t>>;
    case Ty::kS64:
      return op3<O<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class O>
Fn two_bits(Ty t) {  // logic works on the stored words, predicates included
  switch (type_bytes(t)) {
    case 2:
      return op2<O<uint16_t>>;
    case 0:
    case 4:
      return op2<O<uint32_t>>;
    case 8:
      return op2<O<uint64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class O>
Fn one_bits(Ty t) {
  switch (type_bytes(t)) {
    case 2:
      return op1<O<uint16_t>>;
    case 0:
    case 4:
      return op1<O<uint32_t>>;
    case 8:
      return op1<O<uint64_t>>;
    default:
      return nullptr;
  }
}
template <class A4>
Fn dp4a_pick(bool signed_b) {
  return signed_b ? op3<Dp4a<A4, int8_t>> : op3<Dp4a<A4, uint8_t>>;
}
template <class A2>
Fn dp2a_pick(bool signed_b, bool hi) {
  if (signed_b) return hi ? op3<Dp2a<A2, int8_t, true>> : op3<Dp2a<A2, int8_t, false>>;
  return hi ? op3<Dp2a<A2, uint8_t, true>> : op3<Dp2a<A2, uint8_t, false>>;
}
bool is_signed(Ty t) { return t == Ty::kS8 || t == Ty::kS16 || t == Ty::kS32 || t == Ty::kS64; }
template <template <class, bool> class O, bool F>
Fn by_sign32_3(Ty t) {
  return is_signed(t) ? op3<O<int32_t, F>> : op3<O<uint32_t, F>>;
}

Fn pair_pick(const Key& k) {
  bool s = k.t == Ty::kS16x2;
  switch (k.op) {
    case Op::kAdd:
      return op2<Pair16<Add<uint16_t>>>;
    case Op::kSub:
      return op2<Pair16<Sub<uint16_t>>>;
    case Op::kMin:
      if (k.relu) return s ? op2<Pair16<MinRelu<int16_t>>> : nullptr;
      return s ? op2<Pair16<Min<int16_t>>> : op2<Pair16<Min<uint16_t>>>;
    case Op::kMax:
      if (k.relu) return s ? op2<Pair16<MaxRelu<int16_t>>> : nullptr;
      return s ? op2<Pair16<Max<int16_t>>> : op2<Pair16<Max<uint16_t>>>;
    default:
      return nullptr;
  }
}

// Sums, products, quotients and what is compared of two numbers.
Fn pick_arithmetic(const Key& k) {
  const bool s = is_signed(k.t);
  switch (k.op) {
    case Op::kAdd:
      return k.sat ? op2<AddSat> : two_int<Add>(k.t);
    case Op::kSub:
      return k.sat ? op2<SubSat> : two_int<Sub>(k.t);
    case Op::kMul:
      return two_int<Mul>(k.t);
    case Op::kMulHi:
      return two_int<MulHi>(k.t);
    case Op::kMad:
      return three_int<Mad>(k.t);
    case Op::kMadHi:
      return k.sat ? op3<MadHiSat> : three_int<MadHi>(k.t);
    case Op::kMulWide:
      switch (k.t) {
        case Ty::kU16:
          return op2<MulWide<uint16_t>>;
        case Ty::kS16:
          return op2<MulWide<int16_t>>;
        case Ty::kU32:
          return op2<MulWide<uint32_t>>;
        case Ty::kS32:
          return op2<MulWide<int32_t>>;
        default:
          return nullptr;
      }
    case Op::kMadWide:
      switch (k.t) {
        case Ty::kU16:
          return op3<MadWide<uint16_t>>;
        case Ty::kS16:
          return op3<MadWide<int16_t>>;
        case Ty::kU32:
          return op3<MadWide<uint32_t>>;
        case Ty::kS32:
          return op3<MadWide<int32_t>>;
        default:
          return nullptr;
      }
    case Op::kMul24:
      return s ? op2<Mul24<int32_t, false>> : op2<Mul24<uint32_t, false>>;
    case Op::kMul24Hi:
      return s ? op2<Mul24<int32_t, true>> : op2<Mul24<uint32_t, true>>;
    case Op::kMad24:
      return by_sign32_3<Mad24, false>(k.t);
    case Op::kMad24Hi:
      return by_sign32_3<Mad24, true>(k.t);
    case Op::kSad:
      return three_int<Sad>(k.t);
    case Op::kDiv:
      return two_int<Div>(k.t);
    case Op::kRem:
      return two_int<Rem>(k.t);
    case Op::kMin:
      if (k.relu) return k.t == Ty::kS32 ? op2<MinRelu<int32_t>> : nullptr;
      return two_int<Min>(k.t);
    case Op::kMax:
      if (k.relu) return k.t == Ty::kS32 ? op2<MaxRelu<int32_t>> : nullptr;
      return two_int<Max>(k.t);
    case Op::kMin3:
      return three_int<Min3>(k.t);
    case Op::kMax3:
      return three_int<Max3>(k.t);
    case Op::kAbs:
      return k.t == Ty::kS16   ? op1<Abs<int16_t>>
             : k.t == Ty::kS32 ? op1<Abs<int32_t>>
             : k.t == Ty::kS64 ? op1<Abs<int64_t>>
                               : nullptr;
    case Op::kNeg:
      return one_bits<Neg>(k.t);
    default:
      return nullptr;
  }
}

// Logic and shifts.
Fn pick_logic(const Key& k) {
  const bool s = is_signed(k.t);
  switch (k.op) {
    case Op::kAnd:
      return two_bits<And>(k.t);
    case Op::kOr:
      return two_bits<Or>(k.t);
    case Op::kXor:
      return two_bits<Xor>(k.t);
    case Op::kNot:
      return one_bits<Not>(k.t);
    case Op::kCnot:
      return one_bits<Cnot>(k.t);
    case Op::kLop3:
      return lop3;
    case Op::kShl:
      switch (type_bytes(k.t)) {
        case 2:
          return op2<Shl<uint16_t>>;
        case 4:
          return op2<Shl<uint32_t>>;
        default:
          return op2<Shl<uint64_t>>;
      }
    case Op::kShr:
      switch (type_bytes(k.t)) {
        case 2:
          return s ? op2<Shr<int16_t>> : op2<Shr<uint16_t>>;
        case 4:
          return s ? op2<Shr<int32_t>> : op2<Shr<uint32_t>>;
        default:
          return s ? op2<Shr<int64_t>> : op2<Shr<uint64_t>>;
      }
    case Op::kShfLeft:
      return k.clamp ? op3<Shf<true, true>> : op3<Shf<true, false>>;
    case Op::kShfRight:
      return k.clamp ? op3<Shf<false, true>> : op3<Shf<false, false>>;
    default:
      return nullptr;
  }
}

// Bits and bytes of a word: counting, finding, cutting, permuting.
Fn pick_bits(const Key& k) {
  const bool s = is_signed(k.t);
  const bool wide = type_bytes(k.t) == 8;
  switch (k.op) {
    case Op::kPopc:
      return wide ? op1<Popc<uint64_t>> : op1<Popc<uint32_t>>;
    case Op::kClz:
      return wide ? op1<Clz<uint64_t>> : op1<Clz<uint32_t>>;
    case Op::kBfind:
      if (wide) {
        if (k.shiftamt) return s ? op1<Bfind<int64_t, true>> : op1<Bfind<uint64_t, true>>;
        return s ? op1<Bfind<int64_t, false>> : op1<Bfind<uint64_t, false>>;
      }
      if (k.shiftamt) return s ? op1<Bfind<int32_t, true>> : op1<Bfind<uint32_t, true>>;
      return s ? op1<Bfind<int32_t, false>> : op1<Bfind<uint32_t, false>>;
    case Op::kBrev:
      return wide ? op1<Brev<uint64_t>> : op1<Brev<uint32_t>>;
    case Op::kBfe:
      if (wide) return s ? op3<Bfe<int64_t>> : op3<Bfe<uint64_t>>;
      return s ? op3<Bfe<int32_t>> : op3<Bfe<uint32_t>>;
    case Op::kBfi:
      return wide ? bfi<uint64_t> : bfi<uint32_t>;
    case Op::kFns:
      return op3<Fns>;
    case Op::kPrmt:
      switch (k.mode) {
        case 0:
          return op3<Prmt>;
        case 1:
          return op3<PrmtMode<0>>;
        case 2:
          return op3<PrmtMode<1>>;
        case 3:
          return op3<PrmtMode<2>>;
        case 4:
          return op3<PrmtMode<3>>;
        case 5:
          return op3<PrmtMode<4>>;
        default:
          return op3<PrmtMode<5>>;
      }
    case Op::kBmsk:
      return k.clamp ? op2<Bmsk<true>> : op2<Bmsk<false>>;
    case Op::kSzext:
      if (k.clamp) return s ? op2<Szext<int32_t, true>> : op2<Szext<uint32_t, true>>;
      return s ? op2<Szext<int32_t, false>> : op2<Szext<uint32_t, false>>;
    default:
      return nullptr;
  }
}

// What has more than one result or part: carries, dot products, video instructions.
Fn pick_chained(const Key& k) {
  const bool s = is_signed(k.t);
  const bool wide = type_bytes(k.t) == 8;
  switch (k.op) {
    case Op::kDp4a:
      return s ? dp4a_pick<int8_t>(is_signed(k.t2)) : dp4a_pick<uint8_t>(is_signed(k.t2));
    case Op::kDp2a:
      return s ? dp2a_pick<int16_t>(is_signed(k.t2), k.hi)
               : dp2a_pick<uint16_t>(is_signed(k.t2), k.hi);
    case Op::kAddCarry:
      return wide ? carry_pick<uint64_t, kCarryAdd>(k) : carry_pick<uint32_t, kCarryAdd>(k);
    case Op::kSubCarry:
      return wide ? carry_pick<uint64_t, kCarrySub>(k) : carry_pick<uint32_t, kCarrySub>(k);
    case Op::kMadCarry:
      if (k.hi) {
        if (s)
          return wide ? carry_pick<int64_t, kCarryMadHi>(k) : carry_pick<int32_t, kCarryMadHi>(k);
        return wide ? carry_pick<uint64_t, kCarryMadHi>(k) : carry_pick<uint32_t, kCarryMadHi>(k);
      }
      return wide ? carry_pick<uint64_t, kCarryMadLo>(k) : carry_pick<uint32_t, kCarryMadLo>(k);
    case Op::kVideo:
      return video;
    default:
      return nullptr;
  }
}

// Comparisons, selections, packing and addresses.
Fn pick_moves(const Key& k) {
  const bool wide = type_bytes(k.t) == 8;
  switch (k.op) {
    case Op::kMov:
      return k.t == Ty::kB128 ? move128 : one_bits<Move>(k.t);
    case Op::kSetp:
    case Op::kSet:
      return compare_type(k);
    case Op::kSelp:
      return wide ? selp<uint64_t> : selp<uint32_t>;
    case Op::kSlct:
      if (k.t2 == Ty::kF32) return wide ? slct<uint64_t, float> : slct<uint32_t, float>;
      return wide ? slct<uint64_t, int32_t> : slct<uint32_t, int32_t>;
    case Op::kPack:
      return k.mode == 1 ? pack2x16 : k.mode == 2 ? pack2x32 : pack;
    case Op::kUnpack:
      return k.mode == 2 ? unpack2x32 : unpack;
    case Op::kCvta:
      return k.space == Space::kShared  ? op1<Window<0>>
             : k.space == Space::kLocal ? op1<Window<1>>
             : k.space == Space::kParam ? op1<Window<3>>
                                        : op1<Move<uint64_t>>;
    case Op::kCvtaTo:
      return k.space == Space::kShared || k.space == Space::kLocal || k.space == Space::kParam
                 ? op1<Window<2>>
                 : op1<Move<uint64_t>>;
    case Op::kIsspacep:
      return isspacep;
    default:
      return nullptr;
  }
}

}  // namespace

Fn pick_integer(const Key& k) {
  if (k.t == Ty::kU16x2 || k.t == Ty::kS16x2) return pair_pick(k);
  for (auto pick : {pick_arithmetic, pick_logic, pick_bits, pick_chained, pick_moves})
    if (Fn f = pick(k)) return f;
  return nullptr;
}

}  // namespace simgpu::ptx::SIMGPU_ARCH
