// Types of elements, and matrices in shared memory as descriptors of wgmma and tcgen05.mma tell of
// them: the tests' own account, after the PTX manual.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace simgpu::ptx::testing {

struct Type {
  const char* name;
  unsigned bits;
  unsigned exponent, mantissa;  // of a float; 0: an integer
};
inline constexpr Type kF16{"f16", 16, 5, 10}, kBF16{"bf16", 16, 8, 7}, kTF32{"tf32", 32, 8, 23},
    kE4M3{"e4m3", 8, 4, 3}, kE5M2{"e5m2", 8, 5, 2}, kS8{"s8", 8, 0, 0}, kU8{"u8", 8, 0, 0},
    kF32{"f32", 32, 8, 23}, kS32{"s32", 32, 0, 0};

inline uint32_t encode(const Type& t, int v) {
  if (t.exponent == 0) return (uint32_t)v & (uint32_t)((1ull << t.bits) - 1);
  if (v == 0) return 0;
  const uint32_t sign = v < 0 ? 1u << (t.exponent + t.mantissa) : 0;
  const auto size = (unsigned)std::abs(v);
  const unsigned e = 31 - (unsigned)__builtin_clz(size);
  const uint32_t fraction = (size - (1u << e)) << (t.mantissa - e);
  return sign | ((1u << (t.exponent - 1)) - 1 + e) << t.mantissa | fraction;
}
inline double decode(const Type& t, uint32_t w) {
  if (t.exponent == 0) return (double)(int32_t)w;
  const double sign = w >> (t.exponent + t.mantissa) & 1 ? -1 : 1;
  const int e = (int)(w >> t.mantissa & ((1u << t.exponent) - 1));
  const double fraction = (double)(w & ((1u << t.mantissa) - 1)) / (double)(1u << t.mantissa);
  if (e == 0) return sign * std::ldexp(fraction, 2 - (1 << (t.exponent - 1)));
  return sign * std::ldexp(1 + fraction, e + 1 - (1 << (t.exponent - 1)));
}

// Values that every type has, and whose sums every type of sum has.
inline int value(unsigned r, unsigned c, unsigned salt, bool whole) {
  const unsigned v = (r * 7 + c * 13 + salt * 5 + r * c) % 8;
  return whole ? (int)v : (int)v - 3;
}

// A matrix of `rows` x `inner` elements in shared memory, in one of the canonical layouts of the
// PTX manual: T elements of 128 bits lie together; `wide` is the number of such pieces in a line of
// the swizzle, 1 without.
struct Place {
  unsigned swizzle = 0;  // as a descriptor has it
  bool outer = false;    // M-major or N-major
  uint32_t begin = 0, leading = 0, stride = 0, base = 0;

  unsigned wide() const {
    static const unsigned kWide[] = {1, 8, 4, 2};
    return kWide[swizzle];
  }
  uint32_t byte(unsigned row, unsigned k, unsigned bits) const {
    const unsigned t = 128 / bits, w = wide();
    uint32_t at = begin;  // (row, k) -> bytes, mode by mode
    if (!outer) {         // ((8, m), (T, 2)) : ((wT, stride), (1, T or leading))
      at += row % 8 * 16 * w + row / 8 * stride + k % t * bits / 8 +
            k / t * (swizzle == 0 ? leading : 16);
    } else {  // ((T, w, m), (8, k)) : ((1, T, leading), (wT, stride)); without swizzle exchanged
      at += row % t * bits / 8 + row / t % w * 16 +
            row / t / w * (swizzle == 0 ? stride : leading) + k % 8 * 16 * w +
            k / 8 * (swizzle == 0 ? leading : stride);
    }
    // Bits 4 and up of the address, by bits 7 and up, counted from where the pattern begins.
    const uint32_t line = (at - base * 128) / 128;
    return at ^ (line % w) << 4;
  }
  uint64_t descriptor() const {
    auto field = [](uint32_t v) { return (uint64_t)(v & 0x3ffff) >> 4; };
    return field(begin) | field(leading) << 16 | field(stride) << 32 | (uint64_t)base << 49 |
           (uint64_t)swizzle << 62;
  }
};

// Places for a of 64 rows and b of up to 256, packed or with gaps.
inline Place place(unsigned swizzle, bool outer, uint32_t begin, unsigned rows, unsigned gap) {
  Place p;
  p.swizzle = swizzle;
  p.outer = outer;
  p.begin = begin;
  const uint32_t atom = 128 * p.wide() * gap;  // eight lines
  const unsigned atoms = (rows + 7) / 8;
  if (swizzle == 0) {
    // K-major: two columns of atoms. M-major: likewise, with the offsets' roles exchanged.
    p.stride = atom;
    p.leading = atom * atoms;
  } else if (!outer) {
    p.stride = atom;
    p.leading = 0x3fff0;  // not used
  } else {
    p.leading = 2 * atom;  // two atoms for 16 numbers of the inner dimension
    p.stride = atom;
  }
  return p;
}

}  // namespace simgpu::ptx::testing
