// Elements of matrices as numbers: bits to a value and back. For the files of the matrix
// instructions, each of which is compiled once, for plain x86-64.
#pragma once

#ifndef SIMGPU_ARCH
#define SIMGPU_ARCH scalar
#endif
#include "ptx/handlers/matrix.h"
#include "ptx/lanes/real.h"

namespace simgpu::ptx {

// 8-bit floats: 4 or 5 bits of exponent; E5M2 has infinities.
inline float small_float(unsigned v, unsigned mantissa_bits) {
  const int bias = mantissa_bits == 3 ? 7 : 15;
  const unsigned mantissa = v & ((1u << mantissa_bits) - 1), exponent = (v & 127) >> mantissa_bits;
  const float sign = v & 128 ? -1.0f : 1.0f;
  if (mantissa_bits == 3 && (v & 127) == 127) return scalar::bits<float>(0x7fffffffu);
  if (mantissa_bits == 2 && exponent == 31)
    return mantissa != 0 ? scalar::bits<float>(0x7fffffffu)
                         : sign * scalar::bits<float>(0x7f800000u);
  float f = (float)(exponent == 0 ? mantissa : mantissa + (1u << mantissa_bits));
  for (int e = (exponent == 0 ? 1 : (int)exponent) - bias - (int)mantissa_bits; e != 0;
       e += e < 0 ? 1 : -1)
    f *= e < 0 ? 0.5f : 2.0f;
  return sign * f;
}

// Calls f(a function from bits to a number), so that the loop that f is knows the type.
template <class F>
void with_reader(Element e, F f) {
  switch (e) {
    case Element::kF16:
      return f([](uint64_t v) { return (double)scalar::half_to_float((uint16_t)v); });
    case Element::kBF16:
      return f([](uint64_t v) { return (double)scalar::bits<float>((uint32_t)v << 16); });
    case Element::kTF32:
      return f([](uint64_t v) { return (double)scalar::bits<float>((uint32_t)v & 0xffffe000u); });
    case Element::kE4M3:
      return f([](uint64_t v) { return (double)small_float((unsigned)v, 3); });
    case Element::kE5M2:
      return f([](uint64_t v) { return (double)small_float((unsigned)v, 2); });
    case Element::kF64:
      return f([](uint64_t v) { return scalar::bits<double>(v); });
    default:
      return f([](uint64_t v) { return (double)scalar::bits<float>((uint32_t)v); });
  }
}
inline uint64_t raw_real(double x, Element e) {
  if (e == Element::kF16) return scalar::double_to_half(x);
  if (e == Element::kF64) return x == x ? scalar::bits<uint64_t>(x) : 0x7fffffffffffffffull;
  return x == x ? scalar::bits<uint32_t>((float)x) : 0x7fffffffu;
}
inline int32_t integer_of(uint64_t v, Element e) {
  switch (e) {
    case Element::kS8:
      return (int8_t)v;
    case Element::kS4:
      return (int32_t)((uint32_t)v << 28) >> 28;
    default:
      return (int32_t)v;
  }
}

}  // namespace simgpu::ptx
