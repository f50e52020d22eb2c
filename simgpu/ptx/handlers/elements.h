// Elements of matrices as numbers: bits to a value and back. For the files of the matrix
// instructions, each of which is compiled once, for plain x86-64.
#pragma once

#ifndef SIMGPU_ARCH
#define SIMGPU_ARCH scalar
#endif
#include "ptx/handlers/matrix.h"
#include "ptx/lanes/real.h"

namespace simgpu::ptx {

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
      return f([](uint64_t v) { return (double)small_floats(Element::kE4M3)[v]; });
    case Element::kE5M2:
      return f([](uint64_t v) { return (double)small_floats(Element::kE5M2)[v]; });
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
