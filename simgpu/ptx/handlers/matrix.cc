// Matrix instructions of a warp. Products of 16 bits and less are exact; they are added in double
// and rounded once, where a GPU's tensor cores round more often and in an order of their own.
#include "ptx/handlers/matrix.h"

#include "ptx/handlers/async.h"
#include "ptx/handlers/elements.h"
#include "ptx/handlers/fragments.h"
#include "ptx/handlers/sparse.h"

namespace simgpu::ptx {

unsigned element_bits(Element e) {
  static const uint8_t kBits[] = {16, 32, 64, 16, 32, 8, 8, 4, 4, 1, 8, 8, 32, 8, 8, 8, 4};
  return kBits[(unsigned)e];
}

unsigned MatrixShape::registers(MatrixRole r) const {
  const unsigned bits = element_bits(element(r)), each = bits >= 32 ? 1 : 32 / bits;
  return (slots(r) + each - 1) / each;
}

namespace {

// Floats of few bits. E4M3 and E5M2 have NaNs, E5M2 has infinities.
constexpr float small_float(unsigned v, unsigned exponent_bits, unsigned mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned size = v & ((1u << (exponent_bits + mantissa_bits)) - 1);
  const unsigned mantissa = v & ((1u << mantissa_bits) - 1), exponent = size >> mantissa_bits;
  const float sign = v >> (exponent_bits + mantissa_bits) & 1 ? -1.0f : 1.0f;
  if (exponent_bits == 4 && size == 127) return __builtin_bit_cast(float, 0x7fffffffu);
  if (exponent_bits == 5 && exponent == 31)
    return mantissa != 0 ? __builtin_bit_cast(float, 0x7fffffffu)
                         : sign * __builtin_bit_cast(float, 0x7f800000u);
  float f = (float)(exponent == 0 ? mantissa : mantissa + (1u << mantissa_bits));
  for (int e = (exponent == 0 ? 1 : (int)exponent) - bias - (int)mantissa_bits; e != 0;
       e += e < 0 ? 1 : -1)
    f *= e < 0 ? 0.5f : 2.0f;
  return sign * f;
}
struct SmallFloats {
  float values[256] = {};
  constexpr SmallFloats(unsigned exponent_bits, unsigned mantissa_bits, unsigned padding = 0) {
    for (unsigned v = 0; v < 256; ++v)
      values[v] = small_float(v >> padding, exponent_bits, mantissa_bits);
  }
};
constexpr SmallFloats kE4M3Floats(4, 3), kE5M2Floats(5, 2), kE3M2Floats(3, 2), kE2M3Floats(2, 3),
    kE2M1Floats(2, 1, 2), kPackedE2M1Floats(2, 1);

struct Spot {
  unsigned row, column;
};

// Where a fragment's elements are: in registers, and in the matrix as PTX draws it for mma; for
// wmma, which leaves it open, elements go round the lanes. All counts are powers of two.
class Layout {
 public:
  Layout(const MatrixShape& s, MatrixRole role)
      : width_(element_bits(s.element(role))),
        each_(width_ >= 32 ? 0 : log2_of(32 / width_)),
        columns_(log2_of(s.columns_of(role))),
        halves_(s.m == 16),
        kind_(s.opaque                 ? kOpaque
              : role == MatrixRole::kA ? kA
              : role == MatrixRole::kB ? kB
                                       : kSums) {}

  Spot spot(unsigned lane, unsigned slot) const {
    const unsigned group = lane >> 2, member = lane & 3;
    const unsigned reg = slot >> each_, part = slot & ((1u << each_) - 1);
    switch (kind_) {
      case kOpaque: {
        const unsigned index = slot * kLanes + lane;
        return {index >> columns_, index & ((1u << columns_) - 1)};
      }
      case kA:
        return {group + (halves_ != 0 ? (reg & 1) * 8 : 0),
                (member << each_) + part + (reg >> halves_ << (each_ + 2))};
      case kB:
        return {(member << each_) + part + (reg << (each_ + 2)), group};
      default:
        return {group + 8 * (slot >> 1), 2 * member + (slot & 1)};
    }
  }

  // The bits of an element in a fragment whose registers are `list`.
  uint64_t get(Ctx& c, const uint32_t* list, unsigned lane, unsigned slot) const {
    const uint32_t reg = list[slot >> each_];
    if (width_ == 64) return reg64(c, reg)[lane];
    const uint32_t word = reg32(c, reg)[lane];
    if (width_ == 32) return word;
    return word >> (slot & ((1u << each_) - 1)) * width_ & ((1u << width_) - 1);
  }
  void put(Ctx& c, const uint32_t* list, unsigned lane, unsigned slot, uint64_t v) const {
    const uint32_t reg = list[slot >> each_];
    if (reg == kNone) return;
    if (width_ == 64) {
      reg64(c, reg)[lane] = v;
    } else if (width_ == 32) {
      reg32(c, reg)[lane] = (uint32_t)v;
    } else {
      const unsigned shift = (slot & ((1u << each_) - 1)) * width_;
      const uint32_t mask = ((1u << width_) - 1) << shift;
      uint32_t& word = reg32(c, reg)[lane];
      word = (word & ~mask) | (uint32_t)v << shift;
    }
  }

 private:
  enum Kind : uint8_t { kOpaque, kA, kB, kSums };
  static unsigned log2_of(unsigned n) { return (unsigned)__builtin_ctz(n); }
  const unsigned width_, each_, columns_, halves_;  // each_, columns_, halves_: logarithms
  const Kind kind_;
};

constexpr unsigned kMostRows = 32, kMostInner = 128;

// Calls f(row, column, bits) for each element of a matrix in registers.
template <class F>
void each_element(Ctx& c, const Ins* i, const MatrixShape& s, MatrixRole role, unsigned first,
                  F f) {
  const Layout layout(s, role);
  for (unsigned slot = 0, n = s.slots(role); slot < n; ++slot)
    for (unsigned l = 0; l < kLanes; ++l) {
      const Spot at = layout.spot(l, slot);
      f(at.row, at.column, layout.get(c, i->list + first, l, slot));
    }
}

template <class F>
void put_elements(Ctx& c, const Ins* i, const MatrixShape& s, F f) {
  const Layout layout(s, MatrixRole::kD);
  for (unsigned slot = 0, n = s.slots(MatrixRole::kD); slot < n; ++slot)
    for (unsigned l = 0; l < kLanes; ++l) {
      const Spot at = layout.spot(l, slot);
      layout.put(c, i->list + kMatrixD, l, slot, f(at.row, at.column));
    }
}

void multiply_reals(Ctx& c, const Ins* i, const MatrixShape& s) {
  double a[kMostRows][kMostInner], b[kMostInner][kMostRows], sum[kMostRows][kMostRows];
  with_reader(s.a, [&](auto read) {
    each_element(c, i, s, MatrixRole::kA, kMatrixA,
                 [&](unsigned r, unsigned k, uint64_t v) { a[r][k] = read(v); });
  });
  with_reader(s.b, [&](auto read) {
    each_element(c, i, s, MatrixRole::kB, kMatrixB,
                 [&](unsigned k, unsigned n, uint64_t v) { b[k][n] = read(v); });
  });
  with_reader(s.c, [&](auto read) {
    each_element(c, i, s, MatrixRole::kC, kMatrixC,
                 [&](unsigned r, unsigned n, uint64_t v) { sum[r][n] = read(v); });
  });
  const bool fused = s.d == Element::kF64;
  for (unsigned r = 0; r < s.m; ++r)
    for (unsigned n = 0; n < s.n; n += 8) {  // there are always 8 more
      double row[8];
      for (unsigned x = 0; x < 8; ++x) row[x] = sum[r][n + x];
      for (unsigned k = 0; k < s.k; ++k) {
        const double by = a[r][k], *from = &b[k][n];
        if (fused)
          for (unsigned x = 0; x < 8; ++x) row[x] = scalar::fma64(by, from[x], row[x]);
        else
          for (unsigned x = 0; x < 8; ++x) row[x] += by * from[x];
      }
      for (unsigned x = 0; x < 8; ++x) sum[r][n + x] = row[x];
    }
  put_elements(c, i, s, [&](unsigned r, unsigned n) { return raw_real(sum[r][n], s.d); });
}

// Sums of 16 x 8, of all elements but integers of 4 bits and floats of 64.
bool is_tile(const MatrixShape& s) {
  const bool small = s.a == Element::kS4 || s.a == Element::kU4 || s.b == Element::kS4 ||
                     s.b == Element::kU4 || s.a == Element::kB1 || s.d == Element::kF64;
  return !s.opaque && s.m == kTileRows && !small;
}
Sparsity sparsity_of(Ctx& c, const Ins* i, const MatrixShape& s) {
  return Sparsity(reg32(c, i->list[kMatrixMetadata]), s.a, s.k, s.selector);
}

double scale_of(const BlockScales& scales, unsigned byte) {
  if (scales.e4m3) return kE4M3Floats.values[byte & 127];
  return byte == 255 ? __builtin_nan("")
                     : scalar::bits<double>((uint64_t)(byte - 127 + 1023) << 52);
}
// Multiplies the rows of a and the columns of b by their scales. Those of a lie in two lanes of
// each four, for a row of the upper half and one of the lower; those of b in one.
void apply_scales(Ctx& c, const Ins* i, const MatrixShape& s, TileA a, TileB b) {
  auto scale = [&](MatrixList first, unsigned lane, unsigned lanes, unsigned k) {
    const uint32_t* list = i->list + first;
    const unsigned byte = reg32(c, list[1])[0] + k / (s.k / s.scales.parts);
    const unsigned owner = (lane + lanes * reg32(c, list[2])[0]) % kLanes;
    return scale_of(s.scales, reg32(c, list[0])[owner] >> byte % 4 * 8 & 255);
  };
  for (unsigned k = 0; k < s.k; ++k) {
    for (unsigned r = 0; r < s.m; ++r) a[r][k] *= scale(kMatrixScaleA, r % 8 * 4 + r / 8, 2, k);
    for (unsigned n = 0; n < s.n; ++n) b[k][n] *= scale(kMatrixScaleB, n * 4, 1, k);
  }
}

void multiply_tile(Ctx& c, const Ins* i, const MatrixShape& s) {
  TileA a;
  TileB b;
  TileD d;
  read_rows(c, i->list + kMatrixA, s.registers(MatrixRole::kA), s.a, a);
  if (s.sparse) sparsity_of(c, i, s).expand(a, s.k / 2u);
  read_columns(c, i->list + kMatrixB, s.registers(MatrixRole::kB), s.b, b);
  if (s.scales.parts != 0) apply_scales(c, i, s, a, b);
  read_sums(c, i->list + kMatrixC, s.c, d);
  backend().products->tile(&a[0][0], kTileInner, &b[0][0], &d[0][0], s.k);
  write_sums(c, i->list + kMatrixD, s.d, s.saturate, d);
}

void multiply_integers(Ctx& c, const Ins* i, const MatrixShape& s) {
  int32_t a[kMostRows][kMostInner], b[kMostInner][kMostRows];
  int64_t sum[kMostRows][kMostRows];
  each_element(c, i, s, MatrixRole::kA, kMatrixA,
               [&](unsigned r, unsigned k, uint64_t v) { a[r][k] = integer_of(v, s.a); });
  if (s.sparse) sparsity_of(c, i, s).expand(a, s.k / 2u);
  each_element(c, i, s, MatrixRole::kB, kMatrixB,
               [&](unsigned k, unsigned n, uint64_t v) { b[k][n] = integer_of(v, s.b); });
  each_element(c, i, s, MatrixRole::kC, kMatrixC,
               [&](unsigned r, unsigned n, uint64_t v) { sum[r][n] = (int32_t)v; });
  for (unsigned r = 0; r < s.m; ++r)
    for (unsigned k = 0; k < s.k; ++k)
      for (unsigned n = 0; n < s.n; ++n) sum[r][n] += a[r][k] * b[k][n];
  put_elements(c, i, s, [&](unsigned r, unsigned n) {
    int64_t v = sum[r][n];
    if (s.saturate) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
    return (uint64_t)(uint32_t)v;
  });
}

// Rows of a and columns of b as words.
void multiply_bits(Ctx& c, const Ins* i, const MatrixShape& s) {
  uint32_t a[16][8] = {}, b[8][8] = {}, sum[16][8];
  each_element(c, i, s, MatrixRole::kA, kMatrixA,
               [&](unsigned r, unsigned k, uint64_t v) { a[r][k / 32] |= (uint32_t)v << k % 32; });
  each_element(c, i, s, MatrixRole::kB, kMatrixB,
               [&](unsigned k, unsigned n, uint64_t v) { b[n][k / 32] |= (uint32_t)v << k % 32; });
  each_element(c, i, s, MatrixRole::kC, kMatrixC,
               [&](unsigned r, unsigned n, uint64_t v) { sum[r][n] = (uint32_t)v; });
  for (unsigned r = 0; r < s.m; ++r)
    for (unsigned n = 0; n < s.n; ++n)
      for (unsigned w = 0; w < s.k / 32u; ++w)
        sum[r][n] +=
            (uint32_t)__builtin_popcount(s.exclusive ? a[r][w] ^ b[n][w] : a[r][w] & b[n][w]);
  put_elements(c, i, s, [&](unsigned r, unsigned n) { return (uint64_t)sum[r][n]; });
}

const Ins* outside(Ctx& c, const Ins* i, uint64_t a) {
  return fault(c, i, Outcome::kIllegalAddress, a, "a matrix at 0x%llx is outside every allocation",
               (unsigned long long)a);
}

// wmma: an element of the matrix in memory, as bytes.
uint64_t element_address(Ctx& c, const Ins* i, const MatrixShape& s, unsigned lane, Spot at) {
  const uint64_t base = async_address(c, i->a, i->sub & 1, i->sub & 2, lane);
  const uint64_t pitch = reg32(c, i->b)[lane];
  const uint64_t index =
      s.columns ? at.column * pitch + at.row : at.row * pitch + (uint64_t)at.column;
  return base + index * element_bits(s.element(s.role)) / 8;
}

}  // namespace

const float* small_floats(Element e) {
  switch (e) {
    case Element::kE4M3:
      return kE4M3Floats.values;
    case Element::kE3M2:
      return kE3M2Floats.values;
    case Element::kE2M3:
      return kE2M3Floats.values;
    case Element::kE2M1:
      return kE2M1Floats.values;
    case Element::kPackedE2M1:
      return kPackedE2M1Floats.values;
    default:
      return kE5M2Floats.values;
  }
}

const Ins* op_mma(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const MatrixShape s = MatrixShape::unpack(i->imm);
  if (is_tile(s))
    multiply_tile(c, i, s);
  else if (s.a == Element::kB1)
    multiply_bits(c, i, s);
  else if (s.d == Element::kS32)
    multiply_integers(c, i, s);
  else
    multiply_reals(c, i, s);
  return i + 1;
}

const Ins* op_wmma_load(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const MatrixShape s = MatrixShape::unpack(i->imm);
  const unsigned bytes = element_bits(s.element(s.role)) / 8;
  for (unsigned k = 0; k < 8; ++k)
    if (i->list[k] != kNone && bytes < 8) memset(reg32(c, i->list[k]), 0, 4 * kLanes);
  const Layout layout(s, s.role);
  for (unsigned slot = 0; slot < s.slots(s.role); ++slot)
    for (unsigned l = 0; l < kLanes; ++l) {
      const uint64_t a = element_address(c, i, s, l, layout.spot(l, slot));
      uint64_t v = 0;
      if (!read_bytes(c, l, a, &v, bytes)) return outside(c, i, a);
      layout.put(c, i->list, l, slot, v);
    }
  return i + 1;
}

const Ins* op_wmma_store(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const MatrixShape s = MatrixShape::unpack(i->imm);
  const Layout layout(s, s.role);
  const unsigned bytes = element_bits(s.element(s.role)) / 8;
  for (unsigned slot = 0; slot < s.slots(s.role); ++slot)
    for (unsigned l = 0; l < kLanes; ++l) {
      const uint64_t a = element_address(c, i, s, l, layout.spot(l, slot));
      const uint64_t v = layout.get(c, i->list, l, slot);
      if (!write_bytes(c, l, a, &v, bytes)) return outside(c, i, a);
    }
  return i + 1;
}

// The 16 bytes of a matrix's row, whose address the lane has. False: the launch has failed.
static bool move_row(Ctx& c, const Ins* i, unsigned lane, bool store, void* row) {
  const uint64_t a = async_address(c, i->a, i->sub & 1, i->sub & 2, lane);
  if (a % 16 != 0) {
    fault(c, i, Outcome::kMisaligned, a, "a row of a matrix at 0x%llx is not aligned to 16",
          (unsigned long long)a);
    return false;
  }
  if (store ? write_bytes(c, lane, a, row, 16) : read_bytes(c, lane, a, row, 16)) return true;
  outside(c, i, a);
  return false;
}

const Ins* op_ldmatrix(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const bool transposed = i->sub & 4, store = i->sub & 8;
  for (unsigned k = 0; k < i->n; ++k) {
    uint16_t m[8][8];
    uint32_t* reg = i->list[k] == kNone ? nullptr : reg32(c, i->list[k]);
    auto element = [&](unsigned lane, unsigned half) -> uint16_t& {
      const unsigned x = lane >> 2, y = 2 * (lane & 3) + half;
      return transposed ? m[y][x] : m[x][y];
    };
    if (store)
      for (unsigned l = 0; l < kLanes; ++l)
        for (unsigned half = 0; half < 2; ++half)
          element(l, half) = (uint16_t)(reg[l] >> 16 * half);
    for (unsigned row = 0; row < 8; ++row) {
      const unsigned lane = 8 * k + row;
      if (!move_row(c, i, lane, store, m[row])) return nullptr;
    }
    if (!store && reg)
      for (unsigned l = 0; l < kLanes; ++l) reg[l] = element(l, 0) | (uint32_t)element(l, 1) << 16;
  }
  return i + 1;
}

namespace {

// Element `part` of a lane's register `reg` of a matrix: its row in memory, and its column there.
Spot byte_spot(ByteShape shape, unsigned lane, unsigned reg, unsigned part) {
  const unsigned group = lane >> 2, member = lane & 3;
  switch (shape) {
    case ByteShape::kRows8:
      return {group, 4 * member + part};
    case ByteShape::kRows16:  // transposed
      return {4 * member + part, group + 8 * reg};
    default:  // as the sums of mma lie in registers, transposed
      return {2 * member + (part & 1), group + 8 * (part >> 1)};
  }
}

// 16 elements of `width` bits, one behind the other, to bytes.
void widen_row(uint8_t* row, unsigned width) {
  uint8_t wide[16];
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned bit = k * width;
    const unsigned two = row[bit / 8] | (unsigned)row[(bit / 8 + 1) & 15] << 8;
    wide[k] = (uint8_t)(two >> bit % 8 & ((1u << width) - 1));
  }
  memcpy(row, wide, 16);
}

}  // namespace

const Ins* op_byte_matrix(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const ByteMatrix shape = ByteMatrix::unpack(i->imm);
  const bool store = shape.shape == ByteShape::kStore;
  for (unsigned k = 0; k < shape.count; ++k) {
    uint8_t m[16][16];
    auto each = [&](auto f) {
      for (unsigned q = 0; q < shape.registers(); ++q) {
        const uint32_t r = i->list[k * shape.registers() + q];
        for (unsigned l = 0; r != kNone && l < kLanes; ++l)
          for (unsigned part = 0; part < 4; ++part) {
            const Spot at = byte_spot(shape.shape, l, q, part);
            f(reg32(c, r)[l], 8 * part, m[at.row][at.column]);
          }
      }
    };
    if (store) each([](uint32_t word, unsigned bit, uint8_t& e) { e = (uint8_t)(word >> bit); });
    for (unsigned row = 0; row < shape.rows(); ++row) {
      const unsigned lane = shape.rows() * k + row;
      if (!move_row(c, i, lane, store, m[row])) return nullptr;
      if (!store && shape.packed != 8) widen_row(m[row], shape.packed);
    }
    if (!store)
      each([](uint32_t& word, unsigned bit, uint8_t e) {
        word = (word & ~(255u << bit)) | (uint32_t)e << bit;
      });
  }
  return i + 1;
}

const Ins* op_movmatrix(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  uint16_t m[8][8];
  const uint32_t* from = reg32(c, i->a);
  for (unsigned l = 0; l < kLanes; ++l)
    for (unsigned half = 0; half < 2; ++half)
      m[l >> 2][2 * (l & 3) + half] = (uint16_t)(from[l] >> 16 * half);
  uint32_t* to = reg32(c, i->d);
  for (unsigned l = 0; l < kLanes; ++l)
    to[l] = m[2 * (l & 3)][l >> 2] | (uint32_t)m[2 * (l & 3) + 1][l >> 2] << 16;
  return i + 1;
}

}  // namespace simgpu::ptx
