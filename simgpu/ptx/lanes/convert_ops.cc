// cvt in all its forms. Common pairs have vectorised handlers; every other pair goes through one
// exact path: source -> number -> rounding to the destination's format.
#include "ptx/lanes/real.h"

namespace simgpu::ptx::SIMGPU_ARCH {

namespace {

template <class D, class S>
struct Integer {
  using R = D;
  using A = S;
  static D f(S v) { return (D)v; }
};
template <class D, class S>
struct IntegerSat {
  using R = D;
  using A = S;
  static D f(S v) {
    constexpr __int128 top =
        (__int128)(((unsigned __int128)1 << (sizeof(D) * 8 - ((D)-1 < (D)0 ? 1 : 0))) - 1);
    constexpr __int128 bottom = (D)-1 < (D)0 ? -top - 1 : 0;
    __int128 w = v;
    return (D)(w > top ? top : w < bottom ? bottom : w);
  }
};
template <class D, class S>
Fn integer_pick(bool sat) {
  return sat ? op1<IntegerSat<D, S>> : op1<Integer<D, S>>;
}
template <class D>
Fn integer_from(Ty s, bool sat) {
  switch (s) {
    case Ty::kB8:
    case Ty::kU8:
      return integer_pick<D, uint8_t>(sat);
    case Ty::kS8:
      return integer_pick<D, int8_t>(sat);
    case Ty::kB16:
    case Ty::kU16:
      return integer_pick<D, uint16_t>(sat);
    case Ty::kS16:
      return integer_pick<D, int16_t>(sat);
    case Ty::kB32:
    case Ty::kU32:
      return integer_pick<D, uint32_t>(sat);
    case Ty::kS32:
      return integer_pick<D, int32_t>(sat);
    case Ty::kB64:
    case Ty::kU64:
      return integer_pick<D, uint64_t>(sat);
    case Ty::kS64:
      return integer_pick<D, int64_t>(sat);
    default:
      return nullptr;
  }
}
Fn integer_to(Ty d, Ty s, bool sat) {
  switch (d) {
    case Ty::kB8:
    case Ty::kU8:
      return integer_from<uint8_t>(s, sat);
    case Ty::kS8:
      return integer_from<int8_t>(s, sat);
    case Ty::kB16:
    case Ty::kU16:
      return integer_from<uint16_t>(s, sat);
    case Ty::kS16:
      return integer_from<int16_t>(s, sat);
    case Ty::kB32:
    case Ty::kU32:
      return integer_from<uint32_t>(s, sat);
    case Ty::kS32:
      return integer_from<int32_t>(s, sat);
    case Ty::kB64:
    case Ty::kU64:
      return integer_from<uint64_t>(s, sat);
    case Ty::kS64:
      return integer_from<int64_t>(s, sat);
    default:
      return nullptr;
  }
}

// Round to an integral value; large numbers are integral already.
inline double integral(double x, Round mode) {
  if (!(__builtin_fabs(x) < 0x1p52)) return x;
  double t = (double)(int64_t)x;
  double r = t;
  switch (mode) {
    case Round::kNearest:
      r = (x + __builtin_copysign(0x1p52, x)) - __builtin_copysign(0x1p52, x);
      break;
    case Round::kDown:
      r = t > x ? t - 1 : t;
      break;
    case Round::kUp:
      r = t < x ? t + 1 : t;
      break;
    default:
      break;
  }
  return __builtin_copysign(r, x);
}
template <Round M>
struct Integral32 {
  using R = float;
  using A = float;
  static float f(float x) {
    float a = __builtin_fabsf(x);
    float t = (float)(int32_t)(a < 0x1p23f ? x : 0.0f), r;
    if (M == Round::kNearest) {
      r = (a + 0x1p23f) - 0x1p23f;
      r = __builtin_copysignf(r, x);
    } else if (M == Round::kZero) {
      r = t;
    } else if (M == Round::kDown) {
      r = t > x ? t - 1.0f : t;
    } else {
      r = t < x ? t + 1.0f : t;
    }
    r = a < 0x1p23f ? __builtin_copysignf(r, x) : x;
    return nan_to_canonical(r);
  }
};

// float to 32-bit integers
template <Round M>
struct F32ToS32 {
  using R = int32_t;
  using A = float;
  static int32_t f(float x) {
    float r = Integral32<M>::f(x);
    r = r == r ? r : 0.0f;
    bool high = r >= 0x1p31f, low = r < -0x1p31f;
    int32_t v = (int32_t)(high || low ? 0.0f : r);
    return high ? INT32_MAX : low ? INT32_MIN : v;
  }
};
template <Round M>
struct F32ToU32 {
  using R = uint32_t;
  using A = float;
  static uint32_t f(float x) {
    float r = Integral32<M>::f(x);
    r = r > 0.0f ? r : 0.0f;
    if (r >= 0x1p32f) return UINT32_MAX;
    return (uint32_t)(int64_t)r;
  }
};
template <class D, class S>
struct FromInt {  // to nearest, as the machine rounds
  using R = D;
  using A = S;
  static D f(S v) { return (D)v; }
};
struct F32ToF64 {  // a NaN keeps its sign, which the headers of small floats rely on
  using R = double;
  using A = float;
  static double f(float v) { return (double)v; }
};
struct F64ToF32 {
  using R = float;
  using A = double;
  static float f(double v) { return nan_to_canonical((float)v); }
};
struct Sat32 {
  using R = float;
  using A = float;
  static float f(float v) { return saturate(v); }
};
struct Move32 {
  using R = float;
  using A = float;
  static float f(float v) { return nan_to_canonical(v); }
};
struct F16ToF32 {
  using R = float;
  using A = uint16_t;
  static float f(uint16_t v) { return nan_to_canonical(half_to_float(v)); }
};
struct Bf16ToF32 {
  using R = float;
  using A = uint16_t;
  static float f(uint16_t v) { return nan_to_canonical(bfloat_to_float(v)); }
};
struct F32ToF16 {
  using R = uint16_t;
  using A = float;
  static uint16_t f(float v) { return float_to_half(v); }
};
struct F32ToBf16 {
  using R = uint16_t;
  using A = float;
  static uint16_t f(float v) { return float_to_bfloat(v); }
};

// ---- the exact path ----

enum GenericFlag : uint32_t { kGFtz = 1, kGSat = 2, kGRelu = 4, kGIntegral = 8, kGFinite = 16 };

struct Format {
  int precision, emin, width;
};
Format format_of(Ty t) {
  switch (t) {
    case Ty::kF16:
    case Ty::kF16x2:
      return {11, -14, 16};
    case Ty::kBF16:
    case Ty::kBF16x2:
      return {8, -126, 16};
    case Ty::kTF32:
      return {11, -126, 32};
    case Ty::kF64:
      return {53, -1022, 64};
    default:
      return {24, -126, 32};
  }
}
double to_double(Ty t, uint64_t v) {
  switch (t) {
    case Ty::kF16:
      return half_to_float((uint16_t)v);
    case Ty::kBF16:
      return bfloat_to_float((uint16_t)v);
    case Ty::kF32:
      return bits<float>((uint32_t)v);
    default:
      return bits<double>(v);
  }
}
bool is_float(Ty t) {
  return t == Ty::kF16 || t == Ty::kBF16 || t == Ty::kF32 || t == Ty::kF64 || t == Ty::kTF32;
}
bool is_signed(Ty t) { return t == Ty::kS8 || t == Ty::kS16 || t == Ty::kS32 || t == Ty::kS64; }

// Bits of x in format t, sign included.
uint64_t encode(Ty t, double x, Round mode, uint32_t flags) {
  const Format f = format_of(t);
  const unsigned shift =
      f.width == 32 ? 24 - f.precision : 0;  // tf32 sits in the upper bits of a float
  const uint64_t infinity = (uint64_t)(3 - 2 * f.emin) << (f.precision - 1);
  if (x != x) {
    if (flags & kGSat) return 0;
    return t == Ty::kF64 ? 0xfff8000000000000ull : (1ull << (f.width - 1)) - 1;
  }
  bool negative = __builtin_signbit(x);
  if (flags & kGRelu && negative) return 0;
  if (flags & kGSat) {
    x = saturate(x);
    negative = false;
  }
  uint64_t m;
  if (!finite(x)) {
    m = flags & kGFinite ? infinity - 1 : infinity;
  } else {
    Parts p = split(x);
    m = round_to_format(negative, p.magnitude, p.exponent, false, mode, f.precision, f.emin);
    if (flags & kGFinite && m >= infinity) m = infinity - 1;
  }
  if (flags & kGFtz && t == Ty::kF32 && m < 1ull << (f.precision - 1)) m = 0;
  return (m << shift) | (uint64_t)negative << (f.width - 1);
}
// NaN is 0; where the source is f64 or the result has 64 bits, the integer of the top bit alone, as
// the PTX ISA has it.
uint64_t to_integer(Ty t, Ty from, double x, Round mode) {
  if (x != x) return from == Ty::kF64 || type_bytes(t) == 8 ? 1ull << (type_bytes(t) * 8 - 1) : 0;
  double r = integral(x, mode);
  unsigned width = type_bytes(t) * 8;
  if (is_signed(t)) {
    double limit = bits<double>((uint64_t)(1023 + width - 1) << 52);
    uint64_t least = 1ull << (width - 1), mask = width == 64 ? ~0ull : (1ull << width) - 1;
    if (r >= limit) return least - 1;
    if (r < -limit) return least;
    return (uint64_t)(int64_t)r & mask;
  }
  if (r <= 0) return 0;
  double limit = bits<double>((uint64_t)(1023 + width) << 52);
  if (r >= limit) return width == 64 ? ~0ull : (1ull << width) - 1;
  return r >= 0x1p63 ? (uint64_t)(int64_t)(r - 0x1p63) + (1ull << 63) : (uint64_t)(int64_t)r;
}
uint64_t from_integer(Ty d, Ty s, uint64_t v, Round mode, uint32_t flags) {
  unsigned width = type_bytes(s) * 8;
  bool negative = false;
  if (width < 64) v &= (1ull << width) - 1;
  if (is_signed(s) && v >> (width - 1) & 1) {
    negative = true;
    v = 0 - v;
    if (width < 64) v &= (1ull << width) - 1;
  }
  if (flags & kGSat) v = negative ? 0 : v > 1 ? 1 : v;
  if (flags & kGSat) negative = false;
  const Format f = format_of(d);
  uint64_t m = round_to_format(negative, v, 0, false, mode, f.precision, f.emin);
  if (v == 0) negative = false;
  return m | (uint64_t)negative << (f.width - 1);
}

// imm: source type | destination type << 8 | Round << 16 | flags << 24.
const Ins* generic(Ctx& c, const Ins* i) {
  auto s = (Ty)(i->imm & 255), t = (Ty)(i->imm >> 8 & 255);
  auto mode = (Round)(i->imm >> 16 & 255);
  const auto flags = (uint32_t)(i->imm >> 24 & 255);
  const bool wide_in = type_bytes(s) == 8, wide_out = type_bytes(t) == 8;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t v = wide_in ? reg64(c, i->a)[l] : reg32(c, i->a)[l], r;
    if (is_float(s)) {
      double x = to_double(s, v);
      if (flags & kGFtz && s == Ty::kF32) x = flush((float)x);
      if (!is_float(t)) {
        r = to_integer(t, s, x, mode);
      } else {
        if (flags & kGIntegral) x = integral(x, mode);
        r = encode(t, x, flags & kGIntegral ? Round::kNearest : mode, flags);
      }
    } else {
      r = from_integer(t, s, v, mode, flags);
    }
    if (wide_out)
      reg64(c, i->d)[l] = r;
    else
      reg32(c, i->d)[l] = (uint32_t)r;
  }
  return i + 1;
}

// cvt to x2 from two floats: a is the upper half. imm as above.
const Ins* pack_halves(Ctx& c, const Ins* i) {
  auto t = (Ty)(i->imm >> 8 & 255);
  auto mode = (Round)(i->imm >> 16 & 255);
  const auto flags = (uint32_t)(i->imm >> 24 & 255);
  const bool quick = mode == Round::kNearest && (flags & ~kGFtz) == 0;
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    float x = bits<float>(a[l]), y = bits<float>(b[l]);
    uint32_t high, low;
    if (quick) {
      high = t == Ty::kF16x2 ? float_to_half(x) : float_to_bfloat(x);
      low = t == Ty::kF16x2 ? float_to_half(y) : float_to_bfloat(y);
    } else {
      high = (uint32_t)encode(t, x, mode, flags);
      low = (uint32_t)encode(t, y, mode, flags);
    }
    d[l] = high << 16 | (low & 0xffff);
  }
  return i + 1;
}

// ---- 8-bit floats ----

// e4m3: no infinity, 0x7f is NaN, largest 448. e5m2: like a truncated half.
uint32_t encode8(bool e4m3, double x, uint32_t flags) {
  if (x != x) return 0x7f;
  bool negative = __builtin_signbit(x);
  if (flags & kGRelu && negative) return 0;
  uint32_t sign = negative ? 0x80 : 0;
  double a = __builtin_fabs(x), top = e4m3 ? 448.0 : 57344.0;
  uint32_t most = e4m3 ? 0x7e : 0x7b;
  if (!finite(x)) return sign | most;
  Parts p = split(a);
  // e4m3 has one more binade than an IEEE format of its size: take a wider exponent range and
  // clamp.
  uint64_t m =
      e4m3 ? round_to_format(false, p.magnitude, p.exponent, false, Round::kNearest, 4, -6)
           : round_to_format(false, p.magnitude, p.exponent, false, Round::kNearest, 3, -14);
  if (e4m3 && a >= 240.0) {  // top binade [256, 448], which round_to_format calls overflow
    if (a > top) return sign | most;
    if (a >= 248.0) {
      double step = 32.0, q = round_even(a / step);
      if (a < 256.0) {
        return sign | 0x78;
      }
      uint32_t k = (uint32_t)q - 8;
      return sign | (k > 6 ? most : 0x78 + k);
    }
  }
  return sign | (uint32_t)(m > most ? most : m);
}
float decode8(bool e4m3, uint32_t v) {
  if (!e4m3) return half_to_float((uint16_t)(v << 8));
  uint32_t e = v >> 3 & 15, m = v & 7;
  float r = (v & 0x7f) == 0x7f ? bits<float>(0x7fffffffu)
            : e == 0           ? (float)m * 0x1p-9f
                               : bits<float>((e + 120) << 23 | m << 20);
  return v & 0x80 ? -r : r;
}
// mode 0: from two floats (a upper); 1: from f16x2; 2: to f16x2. sub: 1 for e4m3; imm flags as
// above.
template <unsigned Mode>
const Ins* pack8(Ctx& c, const Ins* i) {
  const bool e4m3 = i->sub != 0;
  const auto flags = (uint32_t)(i->imm >> 24 & 255);
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = Mode == 0 ? reg32(c, i->b) : a;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    if (Mode == 2) {
      uint32_t low = float_to_half(decode8(e4m3, a[l] & 255));
      uint32_t high = float_to_half(decode8(e4m3, a[l] >> 8 & 255));
      if (flags & kGRelu) {
        if (low >> 15 && low != 0x7fff) low = 0;
        if (high >> 15 && high != 0x7fff) high = 0;
      }
      d[l] = high << 16 | low;
    } else {
      double high = Mode == 0 ? bits<float>(a[l]) : half_to_float((uint16_t)(a[l] >> 16));
      double low = Mode == 0 ? bits<float>(b[l]) : half_to_float((uint16_t)a[l]);
      d[l] = encode8(e4m3, high, flags) << 8 | encode8(e4m3, low, flags);
    }
  }
  return i + 1;
}

// ue8m0, the scale of a block: a power of two from 2^-127 (0) to 2^127 (0xfe), 0xff: NaN. The sign
// is dropped. `up`: towards the larger magnitude, or else towards zero.
uint32_t encode_scale(uint32_t x, bool up, bool finite) {
  x &= 0x7fffffff;
  if (x > 0x7f800000) return 0xff;
  uint32_t e = x >> 23;
  if (up && x > 0x00400000 && x < 0x7f800000 && (x & 0x7fffff) != 0) ++e;
  return finite && e == 0xff ? 0xfe : e;
}
// mode as in pack8, with bf16x2 in the place of f16x2.
template <unsigned Mode>
const Ins* pack_scales(Ctx& c, const Ins* i) {
  const bool up = (Round)(i->imm >> 16 & 255) == Round::kUp;
  const bool finite = i->imm >> 24 & kGFinite;
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = Mode == 0 ? reg32(c, i->b) : a;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    if (Mode == 2) {
      uint32_t out = 0;
      for (unsigned k = 0; k < 16; k += 8) {
        const uint32_t e = a[l] >> k & 255;
        out |= (e == 0xff ? 0x7fff : e == 0 ? 0x40 : e << 7) << 2 * k;
      }
      d[l] = out;
    } else {
      const uint32_t high = Mode == 0 ? a[l] : a[l] & 0xffff0000;
      const uint32_t low = Mode == 0 ? b[l] : a[l] << 16;
      d[l] = encode_scale(high, up, finite) << 8 | encode_scale(low, up, finite);
    }
  }
  return i + 1;
}

// ---- 4- and 6-bit floats ----

// They have neither infinities nor NaN; the highest bit is the sign.
struct SmallFormat {
  int mantissa, emin;
  uint32_t most;   // the code of the largest number
  unsigned pitch;  // bits from one element of a pair to the other
};
SmallFormat small_format(Ty t) {
  if (t == Ty::kE2M1x2) return {1, 0, 7, 4};
  if (t == Ty::kE2M3x2) return {3, 0, 31, 8};
  return {2, -2, 31, 8};  // e3m2
}
// To nearest even; what is too large or NaN becomes the largest number.
uint32_t encode_small(const SmallFormat& f, float x, uint32_t flags) {
  if (x != x) return f.most;
  const bool negative = __builtin_signbit(x);
  if (flags & kGRelu && negative) return 0;
  const uint32_t sign = negative ? f.most + 1 : 0;
  const double a = __builtin_fabs((double)x);
  if (a >= 32.0) return sign | f.most;
  const int exponent = (int)(bits<uint64_t>(a) >> 52) - 1023;
  const int e = exponent < f.emin ? f.emin : exponent;
  const double scale = bits<double>((uint64_t)(1023 + f.mantissa - e) << 52);
  // The number of steps has the hidden bit in it, so it carries into the exponent by itself.
  const auto code = (uint32_t)round_even(a * scale) + ((uint32_t)(e - f.emin) << f.mantissa);
  return sign | (code > f.most ? f.most : code);
}
float decode_small(const SmallFormat& f, uint32_t v) {
  const uint32_t code = v & f.most, e = code >> f.mantissa;
  const uint32_t steps = e == 0 ? code : (code & ((1u << f.mantissa) - 1)) | 1u << f.mantissa;
  const int power = f.emin - f.mantissa + (e == 0 ? 0 : (int)e - 1);
  const float r = (float)steps * bits<float>((uint32_t)(127 + power) << 23);
  return v & (f.most + 1) ? -r : r;
}
// Of two floats; a is the upper half. imm as above.
const Ins* pack_small(Ctx& c, const Ins* i) {
  const SmallFormat f = small_format((Ty)(i->imm >> 8 & 255));
  const auto flags = (uint32_t)(i->imm >> 24 & 255);
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  const uint32_t* b = reg32(c, i->b);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint32_t high = encode_small(f, bits<float>(a[l]), flags);
    d[l] = high << f.pitch | encode_small(f, bits<float>(b[l]), flags);
  }
  return i + 1;
}
// To f16x2.
const Ins* unpack_small(Ctx& c, const Ins* i) {
  const SmallFormat f = small_format((Ty)(i->imm & 255));
  const bool relu = i->imm >> 24 & kGRelu;
  uint32_t* d = reg32(c, i->d);
  const uint32_t* a = reg32(c, i->a);
  auto half = [&](uint32_t v) -> uint32_t {
    const uint16_t h = float_to_half(decode_small(f, v));
    return relu && h >> 15 ? 0 : h;
  };
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) d[l] = half(a[l] >> f.pitch) << 16 | half(a[l]);
  return i + 1;
}
bool is_small(Ty t) { return t == Ty::kE2M1x2 || t == Ty::kE2M3x2 || t == Ty::kE3M2x2; }

// cvt.pack.sat.D.s32{.b32} d, a, b, c: saturates both; with c, older halves move up.
const Ins* cvt_pack(Ctx& c, const Ins* i) {
  const unsigned width = i->sub & 63;
  const bool is_s = i->sub & 64;
  uint32_t* d = reg32(c, i->d);
  const auto* a = (const int32_t*)reg32(c, i->a);
  const auto* b = (const int32_t*)reg32(c, i->b);
  const uint32_t* e = i->c == kNone ? nullptr : reg32(c, i->c);
  const int32_t top = is_s ? (1 << (width - 1)) - 1 : (1 << width) - 1,
                bottom = is_s ? -(1 << (width - 1)) : 0;
  auto clamp = [&](int32_t v) {
    return (uint32_t)(v > top ? top : v < bottom ? bottom : v) & ((1u << width) - 1);
  };
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) d[l] = (!e ? 0 : e[l] << (2 * width)) | clamp(a[l]) << width | clamp(b[l]);
  return i + 1;
}

template <template <Round> class O>
Fn by_round(Round r) {
  switch (r) {
    case Round::kNearest:
      return op1<O<Round::kNearest>>;
    case Round::kDown:
      return op1<O<Round::kDown>>;
    case Round::kUp:
      return op1<O<Round::kUp>>;
    default:
      return op1<O<Round::kZero>>;
  }
}

Fn quick(const Key& k) {
  const bool plain = !k.ftz && !k.sat && !k.relu;
  const bool near = k.round == Round::kNone || k.round == Round::kNearest;
  if (k.t == Ty::kF32 && k.t2 == Ty::kF32) {
    if (k.ftz || k.relu) return nullptr;
    if (k.integral) return k.sat ? nullptr : by_round<Integral32>(k.round);
    return k.sat ? op1<Sat32> : op1<Move32>;
  }
  if (!plain) return nullptr;
  if (k.t2 == Ty::kF32 && k.t == Ty::kS32) return by_round<F32ToS32>(k.round);
  if (k.t2 == Ty::kF32 && k.t == Ty::kU32) return by_round<F32ToU32>(k.round);
  if (k.t == Ty::kF64 && k.t2 == Ty::kF32) return op1<F32ToF64>;
  if (k.t == Ty::kF64 && k.t2 == Ty::kS32) return op1<FromInt<double, int32_t>>;
  if (k.t == Ty::kF64 && k.t2 == Ty::kU32) return op1<FromInt<double, uint32_t>>;
  if (k.t == Ty::kF32 && k.t2 == Ty::kF16) return op1<F16ToF32>;
  if (k.t == Ty::kF32 && k.t2 == Ty::kBF16) return op1<Bf16ToF32>;
  if (!near) return nullptr;
  if (k.t == Ty::kF32 && k.t2 == Ty::kF64) return op1<F64ToF32>;
  if (k.t == Ty::kF32 && k.t2 == Ty::kS32) return op1<FromInt<float, int32_t>>;
  if (k.t == Ty::kF32 && k.t2 == Ty::kU32) return op1<FromInt<float, uint32_t>>;
  if (k.t2 == Ty::kF32 && k.t == Ty::kF16) return op1<F32ToF16>;
  if (k.t2 == Ty::kF32 && k.t == Ty::kBF16) return op1<F32ToBf16>;
  return nullptr;
}

}  // namespace

// The caller sets imm for the exact path, whichever handler this returns.
Fn pick_convert(const Key& k) {
  if (k.op == Op::kCvtPack) return cvt_pack;
  if (k.t == Ty::kE4M3x2 || k.t == Ty::kE5M2x2) return k.t2 == Ty::kF32 ? pack8<0> : pack8<1>;
  if (k.t2 == Ty::kE4M3x2 || k.t2 == Ty::kE5M2x2) return k.t == Ty::kF16x2 ? pack8<2> : nullptr;
  if (k.t == Ty::kUE8M0x2) {
    if (k.round != Round::kUp && k.round != Round::kZero) return nullptr;
    return k.t2 == Ty::kF32 ? pack_scales<0> : k.t2 == Ty::kBF16x2 ? pack_scales<1> : nullptr;
  }
  if (is_small(k.t))
    return k.t2 == Ty::kF32 && k.round == Round::kNearest && k.oob ? pack_small : nullptr;
  if (is_small(k.t2))
    return k.t == Ty::kF16x2 && k.round == Round::kNearest ? unpack_small : nullptr;
  if (k.t2 == Ty::kUE8M0x2) return k.t == Ty::kBF16x2 ? pack_scales<2> : nullptr;
  if (k.t == Ty::kF16x2 || k.t == Ty::kBF16x2) return k.t2 == Ty::kF32 ? pack_halves : nullptr;
  if (!is_float(k.t) && !is_float(k.t2)) return integer_to(k.t, k.t2, k.sat);
  if (Fn fn = k.oob ? nullptr : quick(k)) return fn;
  return generic;
}

}  // namespace simgpu::ptx::SIMGPU_ARCH
