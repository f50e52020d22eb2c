// Floating-point instructions.
#include "ptx/lanes/real.h"

namespace simgpu::ptx::SIMGPU_ARCH {

namespace {

template <bool Ftz>
inline float in(float x) {
  return Ftz ? flush(x) : x;
}
template <bool Ftz, bool Sat>
inline float out(float x) {
  if (Ftz) x = flush(x);
  if (Sat) return saturate(x);
  return nan_to_canonical(x);
}

enum Arith { kAdd2, kSub2, kMul2, kDiv2, kFma3 };

template <Arith K, bool Ftz, bool Sat>
struct F32 {
  using R = float;
  using A = float;
  using B = float;
  using C = float;
  static float f(float a, float b) {
    a = in<Ftz>(a);
    b = in<Ftz>(b);
    return out<Ftz, Sat>(K == kAdd2 ? a + b : K == kSub2 ? a - b : K == kMul2 ? a * b : a / b);
  }
  static float f(float a, float b, float c) {
    return out<Ftz, Sat>(fma32(in<Ftz>(a), in<Ftz>(b), in<Ftz>(c)));
  }
};
template <Arith K, bool Sat>
struct F64 {
  using R = double;
  using A = double;
  using B = double;
  using C = double;
  static double f(double a, double b) {
    return nan_to_canonical(K == kAdd2 ? a + b : K == kSub2 ? a - b : K == kMul2 ? a * b : a / b);
  }
  static double f(double a, double b, double c) { return nan_to_canonical(fma64(a, b, c)); }
};

// Directed rounding; sub: bits 0..2 Round, 3 ftz, 4 sat.
template <Arith K, class T>
const Ins* directed(Ctx& c, const Ins* i) {
  auto mode = (Round)(i->sub & 7);
  const bool ftz = i->sub & 8, sat = i->sub & 16;
  auto* d = slot<T>(c, i->d);
  const auto* a = slot<T>(c, i->a);
  const auto* b = slot<T>(c, i->b);
  const auto* e = K == kFma3 ? slot<T>(c, i->c) : nullptr;
  auto enter = [&](T x) {
    if constexpr (sizeof(T) == 4) return ftz ? flush(x) : x;
    return x;
  };
  T result[kLanes];
  set_rounding(mode);
  for (unsigned l = 0; l < kLanes; ++l) {
    T x = enter(get<T>(a[l])), y = enter(get<T>(b[l]));
    if constexpr (K == kAdd2) result[l] = add_asm(x, y);
    if constexpr (K == kSub2) result[l] = add_asm(x, -y);
    if constexpr (K == kMul2) result[l] = mul_asm(x, y);
    if constexpr (K == kDiv2) result[l] = div_asm(x, y);
  }
  set_rounding(Round::kNearest);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    if constexpr (K == kFma3) {
      T x = enter(get<T>(a[l])), y = enter(get<T>(b[l])), z = enter(get<T>(e[l]));
      if constexpr (sizeof(T) == 4)
        result[l] = fma32_soft(x, y, z, mode);
      else
        result[l] = fma64_soft(x, y, z, mode);
    }
    T r = enter(result[l]);
    d[l] = put(sat ? saturate(r) : nan_to_canonical(r));
  }
  return i + 1;
}
// One argument: sub as above; root or reciprocal.
template <bool Root, class T>
const Ins* directed1(Ctx& c, const Ins* i) {
  auto mode = (Round)(i->sub & 7);
  const bool ftz = i->sub & 8;
  auto* d = slot<T>(c, i->d);
  const auto* a = slot<T>(c, i->a);
  auto enter = [&](T x) {
    if constexpr (sizeof(T) == 4) return ftz ? flush(x) : x;
    return x;
  };
  T result[kLanes];
  set_rounding(mode);
  for (unsigned l = 0; l < kLanes; ++l) {
    T x = enter(get<T>(a[l]));
    result[l] = Root ? sqrt_asm(x) : div_asm((T)1, x);
  }
  set_rounding(Round::kNearest);
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) d[l] = put(nan_to_canonical(enter(result[l])));
  return i + 1;
}

template <Arith K>
Fn arith32(const Key& k) {
  if (k.round > Round::kNearest) return directed<K, float>;
  if constexpr (K == kFma3) {
    if (k.ftz) return k.sat ? op3<F32<K, true, true>> : op3<F32<K, true, false>>;
    return k.sat ? op3<F32<K, false, true>> : op3<F32<K, false, false>>;
  } else {
    if (k.ftz) return k.sat ? op2<F32<K, true, true>> : op2<F32<K, true, false>>;
    return k.sat ? op2<F32<K, false, true>> : op2<F32<K, false, false>>;
  }
}
template <Arith K>
Fn arith64(const Key& k) {
  if (k.round > Round::kNearest) return directed<K, double>;
  if constexpr (K == kFma3)
    return op3<F64<K, false>>;
  else
    return op2<F64<K, false>>;
}

// Two floats in a 64-bit register; sub: bit 3 ftz, bits 0..2 Round.
template <Arith K>
const Ins* arith32x2(Ctx& c, const Ins* i) {
  auto mode = (Round)(i->sub & 7);
  const bool ftz = i->sub & 8;
  uint64_t* d = reg64(c, i->d);
  const uint64_t* a = reg64(c, i->a);
  const uint64_t* b = reg64(c, i->b);
  const uint64_t* e = K == kFma3 ? reg64(c, i->c) : b;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t r = 0;
    for (unsigned h = 0; h < 64; h += 32) {
      float x = bits<float>((uint32_t)(a[l] >> h)), y = bits<float>((uint32_t)(b[l] >> h));
      float z = bits<float>((uint32_t)(e[l] >> h));
      if (ftz) x = flush(x), y = flush(y), z = flush(z);
      // x + y and x * y are single roundings of a fused form, apart from the sign of a zero sum.
      float v;
      if (mode > Round::kNearest)
        v = K == kFma3 ? fma32_soft(x, y, z, mode)
            : K == kMul2
                ? fma32_soft(x, y,
                             bits<float>(bits<uint32_t>(x) ^ bits<uint32_t>(y)) > 0 ? 0.0f : -0.0f,
                             mode)
                : fma32_soft(x, 1.0f, K == kSub2 ? -y : y, mode);
      else
        v = K == kFma3 ? fma32(x, y, z) : K == kMul2 ? x * y : K == kSub2 ? x - y : x + y;
      if (ftz) v = flush(v);
      r |= (uint64_t)put(nan_to_canonical(v)) << h;
    }
    d[l] = r;
  }
  return i + 1;
}

// ---- min, max, sign ----

template <class T>
inline T least(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
inline T most(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T, bool Max, bool Ftz, bool Nan, bool Xor>
inline T choose(T a, T b) {
  if constexpr (Ftz && sizeof(T) == 4) {
    a = flush(a);
    b = flush(b);
  }
  if (Nan && (a != a || b != b)) return nan_to_canonical((T)(a + b));
  bool negative = __builtin_signbit(a) != __builtin_signbit(b);
  if (Xor) {
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    if constexpr (sizeof(T) == 4) {
      a = __builtin_fabsf(a);
      b = __builtin_fabsf(b);
    }
  }
  T r = Max ? most(a, b) : least(a, b);
  r = nan_to_canonical(r);
  if (Xor && r == r) r = negative ? -r : r;
  return r;
}
template <class T, bool Max, bool Ftz, bool Nan, bool Xor>
struct Choose {
  using R = T;
  using A = T;
  using B = T;
  using C = T;
  static T f(T a, T b) { return choose<T, Max, Ftz, Nan, Xor>(a, b); }
  static T f(T a, T b, T c) {
    if (!Xor) return f(f(a, b), c);
    // min3 with .xorsign.abs: the sign is that of all three.
    T r = f(f(a, b), c);
    return r;
  }
};
template <bool Max, bool Three>
Fn choose32(const Key& k) {
#define SIMGPU_CHOOSE(Z, N, X) \
  (Three ? (Fn)op3<Choose<float, Max, Z, N, X>> : (Fn)op2<Choose<float, Max, Z, N, X>>)
  if (k.xorsign) {
    if (k.ftz) return k.nan ? SIMGPU_CHOOSE(true, true, true) : SIMGPU_CHOOSE(true, false, true);
    return k.nan ? SIMGPU_CHOOSE(false, true, true) : SIMGPU_CHOOSE(false, false, true);
  }
  if (k.ftz) return k.nan ? SIMGPU_CHOOSE(true, true, false) : SIMGPU_CHOOSE(true, false, false);
  return k.nan ? SIMGPU_CHOOSE(false, true, false) : SIMGPU_CHOOSE(false, false, false);
#undef SIMGPU_CHOOSE
}

template <class T, bool Ftz>
struct Abs {
  using R = T;
  using A = T;
  static T f(T a) {
    if constexpr (sizeof(T) == 4) {
      if (Ftz) a = flush(a);
      return __builtin_fabsf(a);
    } else {
      return __builtin_fabs(a);
    }
  }
};
template <class T, bool Ftz>
struct Neg {
  using R = T;
  using A = T;
  static T f(T a) {
    if constexpr (Ftz && sizeof(T) == 4) a = flush(a);
    return -a;
  }
};
template <class T>
struct Copysign {  // the sign of a, the magnitude of b
  using R = T;
  using A = T;
  using B = T;
  static T f(T a, T b) {
    if constexpr (sizeof(T) == 4)
      return __builtin_copysignf(b, a);
    else
      return __builtin_copysign(b, a);
  }
};
template <class T>
struct Testp {  // the class is 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal
  using R = bool;
  using A = T;
  static bool f(T a, uint32_t which) {
    bool nan = a != a, infinite = !nan && !(a - a == a - a);
    bool small = sizeof(T) == 4 ? __builtin_fabs((double)a) < 0x1p-126
                                : __builtin_fabs((double)a) < 0x1p-1022;
    switch (which) {
      case 0:
        return !nan && !infinite;
      case 1:
        return infinite;
      case 2:
        return !nan;
      case 3:
        return nan;
      case 4:
        return !nan && !infinite && !small;
      default:
        return small && a != 0;
    }
  }
};

// ---- functions ----

template <bool Ftz>
struct Sqrt32 {
  using R = float;
  using A = float;
  static float f(float a) { return out<Ftz, false>(root(in<Ftz>(a))); }
};
template <bool Ftz>
struct Rcp32 {
  using R = float;
  using A = float;
  static float f(float a) { return out<Ftz, false>(1.0f / in<Ftz>(a)); }
};
template <bool Ftz>
struct Rsqrt32 {
  using R = float;
  using A = float;
  static float f(float a) { return out<Ftz, false>((float)(1.0 / root((double)in<Ftz>(a)))); }
};
#define SIMGPU_APPROX(Name, expr)   \
  template <bool Ftz>               \
  struct Name {                     \
    using R = float;                \
    using A = float;                \
    static float f(float a) {       \
      a = in<Ftz>(a);               \
      return out<Ftz, false>(expr); \
    }                               \
  };
SIMGPU_APPROX(Sin32, sincos_approx(a, 0))
SIMGPU_APPROX(Cos32, sincos_approx(a, 1))
SIMGPU_APPROX(Lg232, lg2_approx(a))
SIMGPU_APPROX(Ex232, ex2_approx(a))
SIMGPU_APPROX(Tanh32, tanh_approx(a))

struct Sqrt64 {
  using R = double;
  using A = double;
  static double f(double a) { return nan_to_canonical(root(a)); }
};
struct Rcp64 {
  using R = double;
  using A = double;
  static double f(double a) { return nan_to_canonical(1.0 / a); }
};
struct Rsqrt64 {
  using R = double;
  using A = double;
  static double f(double a) { return nan_to_canonical(1.0 / root(a)); }
};
// The .approx.ftz.f64 forms look only at the upper 32 bits and give zero lower ones.
inline double gross(double x) {
  if (__builtin_fabs(x) < 0x1p-1022) x = __builtin_copysign(0.0, x);
  return bits<double>(bits<uint64_t>(x) & 0xffffffff00000000ull);
}
struct Rcp64Approx {
  using R = double;
  using A = double;
  static double f(double a) { return gross(nan_to_canonical(1.0 / gross(a))); }
};
struct Rsqrt64Approx {
  using R = double;
  using A = double;
  static double f(double a) { return gross(nan_to_canonical(1.0 / root(gross(a)))); }
};

// ---- half precision: scalar per lane; sub holds flags ----

enum HalfFlag : uint32_t { kHFtz = 1, kHSat = 2, kHRelu = 4, kHNan = 8, kHXor = 16 };
enum HalfOp {
  kHAdd,
  kHSub,
  kHMul,
  kHFma,
  kHMin,
  kHMax,
  kHMin3,
  kHMax3,
  kHAbs,
  kHNeg,
  kHEx2,
  kHTanh,
  kHCopy
};

template <class H>
inline uint16_t half_flush(uint16_t h) {
  constexpr uint16_t least = 1 << (H::kPrecision - 1);
  return (h & 0x7fff) < least ? h & 0x8000 : h;
}
template <class H>
inline uint16_t half_finish(uint16_t h, uint32_t flags) {
  bool nan = (h & 0x7fff) > H::kInfinity;
  if (nan) return flags & kHSat ? 0 : 0x7fff;
  if (flags & kHFtz) h = half_flush<H>(h);
  if (flags & kHRelu && h >> 15) h = 0;
  if (flags & kHSat) h = h >> 15 ? 0 : h > H::kOne ? H::kOne : h;
  return h;
}
template <class H, HalfOp K>
inline uint16_t half_op(uint16_t a, uint16_t b, uint16_t e, uint32_t flags) {
  if (flags & kHFtz) {
    a = half_flush<H>(a);
    b = half_flush<H>(b);
    e = half_flush<H>(e);
  }
  float x = H::widen(a), y = H::widen(b), z = H::widen(e);
  switch (K) {
    case kHAdd:
      return half_finish<H>(H::narrow_odd((double)x + y),
                            flags);  // exact, or harmless (53 >= 2p+2)
    case kHSub:
      return half_finish<H>(H::narrow_odd((double)x - y), flags);
    case kHMul:
      return half_finish<H>(H::narrow_odd((double)x * y), flags);
    case kHFma: {
      double odd = fma_to_odd(x, y, z);
      return half_finish<H>(H::narrow_odd(odd), flags);
    }
    case kHMin:
    case kHMax:
    case kHMin3:
    case kHMax3: {
      constexpr bool max = K == kHMax || K == kHMax3;
      bool negative = (a ^ b) >> 15 & 1;
      bool nan = x != x || y != y || ((K == kHMin3 || K == kHMax3) && z != z);
      if (flags & kHNan && nan) return 0x7fff;
      if (flags & kHXor) x = __builtin_fabsf(x), y = __builtin_fabsf(y);
      float r = max ? most(x, y) : least(x, y);
      if (K == kHMin3 || K == kHMax3) r = max ? most(r, z) : least(r, z);
      if (r != r) return 0x7fff;
      uint16_t h = H::narrow(r);
      if (flags & kHXor && negative) h ^= 0x8000;
      return half_finish<H>(h, flags);
    }
    case kHAbs:
      return a & 0x7fff;
    case kHNeg:
      return a ^ 0x8000;
    case kHEx2:
      return half_finish<H>(H::narrow(ex2_approx(x)), flags);
    case kHTanh:
      return half_finish<H>(H::narrow(tanh_approx(x)), flags);
    case kHCopy:
      return (a & 0x8000) | (b & 0x7fff);
  }
  return 0;
}
template <class H, HalfOp K, bool Two>
const Ins* half_run(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = i->b == kNone ? a : reg32(c, i->b);
  const uint32_t* e = i->c == kNone ? a : reg32(c, i->c);
  const uint32_t flags = i->sub;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint32_t r = half_op<H, K>((uint16_t)a[l], (uint16_t)b[l], (uint16_t)e[l], flags);
    if (Two)
      r |= (uint32_t)half_op<H, K>((uint16_t)(a[l] >> 16), (uint16_t)(b[l] >> 16),
                                   (uint16_t)(e[l] >> 16), flags)
           << 16;
    d[l] = r;
  }
  return i + 1;
}
template <class H, bool Two>
Fn half_pick(const Key& k) {
  switch (k.op) {
    case Op::kAdd:
      return half_run<H, kHAdd, Two>;
    case Op::kSub:
      return half_run<H, kHSub, Two>;
    case Op::kMul:
      return half_run<H, kHMul, Two>;
    case Op::kFma:
      return half_run<H, kHFma, Two>;
    case Op::kMin:
      return half_run<H, kHMin, Two>;
    case Op::kMax:
      return half_run<H, kHMax, Two>;
    case Op::kMin3:
      return half_run<H, kHMin3, Two>;
    case Op::kMax3:
      return half_run<H, kHMax3, Two>;
    case Op::kAbs:
      return half_run<H, kHAbs, Two>;
    case Op::kNeg:
      return half_run<H, kHNeg, Two>;
    case Op::kEx2:
      return half_run<H, kHEx2, Two>;
    case Op::kTanh:
      return half_run<H, kHTanh, Two>;
    case Op::kCopysign:
      return half_run<H, kHCopy, Two>;
    default:
      return nullptr;
  }
}

// setp on halves. imm: Cmp | BoolOp << 8 | ftz << 16 | c negated << 17. Two: d and e are the low
// and the high result; one: d the result, e its opposite.
template <class H, bool Two>
const Ins* half_setp(Ctx& c, const Ins* i) {
  auto cmp = (Cmp)(i->imm & 255);
  auto bool_op = (BoolOp)(i->imm >> 8 & 255);
  const bool ftz = i->imm >> 16 & 1, negated = i->imm >> 17 & 1;
  uint32_t* d = reg32(c, i->d);
  uint32_t* q = i->e == kNone ? nullptr : reg32(c, i->e);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  const uint32_t* p = i->c == kNone ? nullptr : reg32(c, i->c);
  auto one = [&](uint32_t x, uint32_t y) {
    uint16_t u = (uint16_t)x, v = (uint16_t)y;
    if (ftz) u = half_flush<H>(u), v = half_flush<H>(v);
    return compare(H::widen(u), H::widen(v), cmp);
  };
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    bool r = one(a[l], b[l]), s = Two ? one(a[l] >> 16, b[l] >> 16) : !r;
    if (p) {
      bool v = (p[l] != 0) != negated;
      auto join = [&](bool x) {
        return bool_op == BoolOp::kAnd ? x && v : bool_op == BoolOp::kOr ? x || v : x != v;
      };
      r = join(r);
      s = join(s);
    }
    d[l] = r ? ~0u : 0;
    if (q) q[l] = s ? ~0u : 0;
  }
  return i + 1;
}
// set on halves: sub 0 gives 1.0 in the half type, 1 all ones of 16 bits each, 2 all ones of 32
// bits, 3 1.0f.
template <class H, bool Two>
const Ins* half_set(Ctx& c, const Ins* i) {
  auto cmp = (Cmp)(i->imm & 255);
  const bool ftz = i->imm >> 16 & 1;
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  const uint32_t yes = i->sub == 0   ? H::kOne
                       : i->sub == 1 ? 0xffffu
                       : i->sub == 2 ? ~0u
                                     : 0x3f800000u;
  auto one = [&](uint32_t x, uint32_t y) -> uint32_t {
    uint16_t u = (uint16_t)x, v = (uint16_t)y;
    if (ftz) u = half_flush<H>(u), v = half_flush<H>(v);
    return compare(H::widen(u), H::widen(v), cmp) ? yes : 0;
  };
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint32_t r = one(a[l], b[l]);
    if (Two) r |= one(a[l] >> 16, b[l] >> 16) << 16;
    d[l] = r;
  }
  return i + 1;
}

template <template <bool> class O>
Fn ftz_op1(bool ftz) {
  return ftz ? op1<O<true>> : op1<O<false>>;
}

Fn pick32(const Key& k) {
  switch (k.op) {
    case Op::kAdd:
      return arith32<kAdd2>(k);
    case Op::kSub:
      return arith32<kSub2>(k);
    case Op::kMul:
      return arith32<kMul2>(k);
    case Op::kFma:
      return arith32<kFma3>(k);
    case Op::kDiv:
      return arith32<kDiv2>(k);
    case Op::kSqrt:
      return k.round > Round::kNearest ? directed1<true, float> : ftz_op1<Sqrt32>(k.ftz);
    case Op::kRcp:
      return k.round > Round::kNearest ? directed1<false, float> : ftz_op1<Rcp32>(k.ftz);
    case Op::kRsqrt:
      return ftz_op1<Rsqrt32>(k.ftz);
    case Op::kSin:
      return ftz_op1<Sin32>(k.ftz);
    case Op::kCos:
      return ftz_op1<Cos32>(k.ftz);
    case Op::kLg2:
      return ftz_op1<Lg232>(k.ftz);
    case Op::kEx2:
      return ftz_op1<Ex232>(k.ftz);
    case Op::kTanh:
      return op1<Tanh32<false>>;
    case Op::kMin:
      return choose32<false, false>(k);
    case Op::kMax:
      return choose32<true, false>(k);
    case Op::kMin3:
      return choose32<false, true>(k);
    case Op::kMax3:
      return choose32<true, true>(k);
    case Op::kAbs:
      return k.ftz ? op1<Abs<float, true>> : op1<Abs<float, false>>;
    case Op::kNeg:
      return k.ftz ? op1<Neg<float, true>> : op1<Neg<float, false>>;
    case Op::kCopysign:
      return op2<Copysign<float>>;
    case Op::kTestp:
      return op1i<Testp<float>>;
    default:
      return nullptr;
  }
}
Fn pick64(const Key& k) {
  switch (k.op) {
    case Op::kAdd:
      return arith64<kAdd2>(k);
    case Op::kSub:
      return arith64<kSub2>(k);
    case Op::kMul:
      return arith64<kMul2>(k);
    case Op::kFma:
      return arith64<kFma3>(k);
    case Op::kDiv:
      return arith64<kDiv2>(k);
    case Op::kSqrt:
      return k.round > Round::kNearest ? directed1<true, double> : op1<Sqrt64>;
    case Op::kRcp:
      if (k.approx) return op1<Rcp64Approx>;
      return k.round > Round::kNearest ? directed1<false, double> : op1<Rcp64>;
    case Op::kRsqrt:
      return k.ftz ? op1<Rsqrt64Approx> : op1<Rsqrt64>;
    case Op::kMin:
      return op2<Choose<double, false, false, false, false>>;
    case Op::kMax:
      return op2<Choose<double, true, false, false, false>>;
    case Op::kAbs:
      return op1<Abs<double, false>>;
    case Op::kNeg:
      return op1<Neg<double, false>>;
    case Op::kCopysign:
      return op2<Copysign<double>>;
    case Op::kTestp:
      return op1i<Testp<double>>;
    default:
      return nullptr;
  }
}

}  // namespace

Fn pick_real(const Key& k) {
  Ty t = k.op == Op::kSet ? k.t2 : k.t;
  if (k.op == Op::kSetp || k.op == Op::kSet) {
    bool set = k.op == Op::kSet;
    switch (t) {
      case Ty::kF16:
        return set ? half_set<Half, false> : half_setp<Half, false>;
      case Ty::kF16x2:
        return set ? half_set<Half, true> : half_setp<Half, true>;
      case Ty::kBF16:
        return set ? half_set<Bfloat, false> : half_setp<Bfloat, false>;
      case Ty::kBF16x2:
        return set ? half_set<Bfloat, true> : half_setp<Bfloat, true>;
      default:
        return nullptr;
    }
  }
  switch (t) {
    case Ty::kF32:
      return pick32(k);
    case Ty::kF64:
      return pick64(k);
    case Ty::kF16:
      return half_pick<Half, false>(k);
    case Ty::kF16x2:
      return half_pick<Half, true>(k);
    case Ty::kBF16:
      return half_pick<Bfloat, false>(k);
    case Ty::kBF16x2:
      return half_pick<Bfloat, true>(k);
    case Ty::kF32x2:
      switch (k.op) {
        case Op::kAdd:
          return arith32x2<kAdd2>;
        case Op::kSub:
          return arith32x2<kSub2>;
        case Op::kMul:
          return arith32x2<kMul2>;
        case Op::kFma:
          return arith32x2<kFma3>;
        default:
          return nullptr;
      }
    default:
      return nullptr;
  }
}

}  // namespace simgpu::ptx::SIMGPU_ARCH
