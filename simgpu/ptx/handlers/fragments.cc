#include "ptx/handlers/fragments.h"

#include "ptx/handlers/elements.h"

namespace simgpu::ptx {

namespace {
constexpr unsigned kMost = 8 * kLanes;  // elements in a register of 32 lanes
}

void read_rows(Ctx& c, const uint32_t* registers, unsigned count, Element e, TileA a) {
  const unsigned width = 4 * 32 / element_bits(e);  // of a row in a register
  for (unsigned q = 0; q < count; ++q) {
    double values[kMost];
    backend().products->widen(e, reg32(c, registers[q]), 8 * width, values);
    for (unsigned r = 0; r < 8; ++r)
      memcpy(&a[r + 8 * (q & 1)][(q >> 1) * width], values + r * width, width * sizeof(double));
  }
}

void read_columns(Ctx& c, const uint32_t* registers, unsigned count, Element e, TileB b) {
  const unsigned width = 4 * 32 / element_bits(e);
  for (unsigned q = 0; q < count; ++q) {
    double values[kMost];
    backend().products->widen(e, reg32(c, registers[q]), 8 * width, values);
    for (unsigned k = 0; k < width; ++k)
      for (unsigned n = 0; n < 8; ++n) b[q * width + k][n] = values[n * width + k];
  }
}

void read_sums(Ctx& c, const uint32_t* registers, Element e, TileD d) {
  double values[2 * kLanes];
  if (e == Element::kF16) {
    for (unsigned q = 0; q < 2; ++q)
      backend().products->widen(e, reg32(c, registers[q]), 2 * kLanes, d[8 * q]);
    return;
  }
  for (unsigned q = 0; q < 4; q += 2) {
    backend().products->widen(e, reg32(c, registers[q]), kLanes, values);
    backend().products->widen(e, reg32(c, registers[q + 1]), kLanes, values + kLanes);
    double* to = d[4 * q];
    for (unsigned l = 0; l < kLanes; ++l) {
      to[2 * l] = values[l];
      to[2 * l + 1] = values[kLanes + l];
    }
  }
}

void write_sums(Ctx& c, const uint32_t* registers, Element e, bool saturate, const TileD d) {
  if (e == Element::kF16) {
    for (unsigned q = 0; q < 2; ++q) {
      uint32_t* to = reg32(c, registers[q]);
      const double* from = d[8 * q];
      for (unsigned l = 0; l < kLanes; ++l)
        to[l] = scalar::double_to_half(from[2 * l]) |
                (uint32_t)scalar::double_to_half(from[2 * l + 1]) << 16;
    }
    return;
  }
  for (unsigned q = 0; q < 4; q += 2) {
    uint32_t *even = reg32(c, registers[q]), *odd = reg32(c, registers[q + 1]), words[2 * kLanes];
    const double* from = d[4 * q];
    if (e == Element::kS32)
      for (unsigned k = 0; k < 2 * kLanes; ++k) {
        double v = from[k];
        if (saturate) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
        words[k] = (uint32_t)(int64_t)v;
      }
    else
      backend().products->narrow(from, 2 * kLanes, words);
    for (unsigned l = 0; l < kLanes; ++l) {
      even[l] = words[2 * l];
      odd[l] = words[2 * l + 1];
    }
  }
}

}  // namespace simgpu::ptx
