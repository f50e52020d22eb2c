#include "ptx/handlers/tensor_core.h"

#include "ptx/handlers/async.h"
#include "ptx/handlers/elements.h"
#include "ptx/handlers/fragments.h"
#include "ptx/handlers/shared_matrix.h"

namespace simgpu::ptx {

namespace {

// The words of a column, lane by lane.
uint32_t* column_of(Block& b, uint32_t column) {
  return reinterpret_cast<uint32_t*>(b.tensor) + (size_t)column * kTensorLanes;
}
uint32_t units_of(uint32_t first, uint32_t columns) {
  return ((1u << columns / kTensorUnit) - 1) << first / kTensorUnit;
}
bool is_size(uint32_t columns) {
  return columns >= kTensorUnit && columns <= kTensorColumns && (columns & (columns - 1)) == 0;
}
// False after a fault: some of the columns are not allocated.
bool allocated(Ctx& c, const Ins* i, uint32_t first, uint32_t count) {
  const uint32_t end = first + count;
  for (uint32_t k = first; k < end; k = (k | (kTensorUnit - 1)) + 1)
    if (k >= kTensorColumns || (c.block->tensor_used >> k / kTensorUnit & 1) == 0) {
      fault(c, i, Outcome::kIllegalAddress, k, "column %u of tensor memory is not allocated", k);
      return false;
    }
  return true;
}

}  // namespace

const Ins* op_tensor_alloc(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  Block& b = *c.block;
  const uint32_t columns = reg32(c, i->b)[0];
  if (!is_size(columns))
    return fault(c, i, Outcome::kIllegalInstruction, 0,
                 "%u columns of tensor memory: not a power of two from 32 to 512", columns);
  uint32_t first = 0;
  while (first + columns <= kTensorColumns && (b.tensor_used & units_of(first, columns)) != 0)
    first += kTensorUnit;
  if (first + columns > kTensorColumns)
    return fault(c, i, Outcome::kIllegalInstruction, 0,
                 "%u columns of tensor memory are not left in this block", columns);
  b.tensor_used |= units_of(first, columns);
  memset(column_of(b, first), 0, (size_t)columns * kTensorLanes * 4);
  const uint64_t to = async_address(c, i->a, i->sub & 1, true, 0);
  if (!write_bytes(c, 0, to, &first, 4))
    return fault(c, i, Outcome::kIllegalAddress, to, "0x%llx is outside every allocation",
                 (unsigned long long)to);
  return i + 1;
}

const Ins* op_tensor_dealloc(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const uint32_t first = reg32(c, i->a)[0] & 0xffff, columns = reg32(c, i->b)[0];
  if (!is_size(columns) || first % kTensorUnit != 0)
    return fault(c, i, Outcome::kIllegalInstruction, first, "no such columns of tensor memory");
  if (!allocated(c, i, first, columns)) return nullptr;
  c.block->tensor_used &= ~units_of(first, columns);
  return i + 1;
}

namespace {

struct TensorSpot {
  uint32_t row, column;
};
// Where a thread's register `k` lies, counted from the address on.
TensorSpot spot(const TensorMove& m, unsigned thread, unsigned k) {
  switch (m.tile) {
    case TensorTile::k16x32bx2:
      return {thread % 16, (m.halves ? 2 * k : k) + thread / 16 * m.split};
    case TensorTile::k16x64b:
      return {thread / 4 + thread / 2 % 2 * 8, 2 * k + thread % 2};
    case TensorTile::k16x128b:
      return {thread / 4 + k % 2 * 8, k / 2 * 4 + thread % 4};
    case TensorTile::k16x256b:
      return {thread / 4 + k / 2 % 2 * 8, k / 4 * 8 + thread % 4 * 2 + k % 2};
    default:
      return {thread, m.halves ? 2 * k : k};
  }
}

}  // namespace

const Ins* op_tensor_move(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  const TensorMove m = TensorMove::unpack(i->imm);
  const uint32_t address = reg32(c, i->a)[0], lane = address >> 16, column = address & 0xffff;
  const bool half = m.tile != TensorTile::k32x32b;  // of a warp's lanes
  const uint32_t own = c.warp->id % 4 * kLanes;
  if (lane != own && !(half && lane == own + kLanes / 2))
    return fault(c, i, Outcome::kIllegalAddress, lane,
                 "warp %u has lanes %u to %u of tensor memory, not those from %u on", c.warp->id,
                 own, own + kLanes - 1, lane);
  const unsigned wide = m.columns() / m.registers() * i->sub;
  if (!allocated(c, i, column, wide) || (m.split != 0 && !allocated(c, i, column + m.split, wide)))
    return nullptr;
  for (unsigned k = 0; k < i->sub; ++k) {
    if (i->list[k] == kNone) continue;
    uint32_t* reg = reg32(c, i->list[k]);
    for (unsigned l = 0; l < kLanes; ++l) {
      const TensorSpot at = spot(m, l, k);
      uint32_t* word = column_of(*c.block, column + at.column) + lane + at.row;
      uint32_t* next = word + kTensorLanes;
      if (m.halves && m.store) {
        *word = reg[l] & 0xffff;
        *next = reg[l] >> 16;
      } else if (m.halves) {
        reg[l] = (*word & 0xffff) | *next << 16;
      } else if (m.store) {
        *word = reg[l];
      } else {
        reg[l] = *word;
      }
    }
  }
  return i + 1;
}

namespace {

// A product, as its instruction descriptor tells.
struct ProductShape {
  uint32_t word;
  TensorKind kind;
  unsigned n() const { return (word >> 17 & 63) * 8; }
  unsigned m() const { return (word >> 24 & 31) * 16; }
  unsigned sums() const { return word >> 4 & 3; }  // 0: f16, 1: f32, 2: s32
  bool saturate() const { return word >> 3 & 1; }
  bool negative_a() const { return word >> 13 & 1; }
  bool negative_b() const { return word >> 14 & 1; }
  bool columns_a() const { return word >> 15 & 1; }
  bool rows_b() const { return word >> 16 & 1; }
  bool sparse() const { return word >> 2 & 1; }
  // Returns false if no such type exists, or the instruction does not take it.
  bool element(unsigned format, Element* out) const {
    static const Element kAll[][2] = {{Element::kF16, Element::kBF16},
                                      {Element::kTF32, Element::kTF32},
                                      {Element::kE4M3, Element::kE5M2},
                                      {Element::kU8, Element::kS8}};
    if (kind == TensorKind::kTF32) format = format == 2 ? 0 : 2;
    if (format > 1) return false;
    *out = kAll[(unsigned)kind][format];
    return true;
  }
};

class TensorProduct {
 public:
  TensorProduct(Ctx& c, const Ins* i, unsigned lane)
      : c_(c),
        i_(i),
        shape_{reg32(c, i->list[kTensorInstruction])[lane], (TensorKind)(i->imm & 255)},
        d_(reg32(c, i->list[kTensorD])[lane]),
        in_memory_((i->imm & 256) != 0),
        a_(in_memory_ ? reg32(c, i->list[kTensorA])[lane] : reg64(c, i->list[kTensorA])[lane]),
        b_(reg64(c, i->list[kTensorB])[lane]),
        added_(reg32(c, i->list[kTensorAdded])[lane] != 0),
        divided_((unsigned)(i->imm >> 16)) {}

  // False after a fault.
  bool run() {
    if (!check()) return false;
    const unsigned each = 16 * 8 / bits_;
    for (unsigned group = 0; group < shape_.m() / kTileRows; ++group) {
      TileA a;
      if (!read_a(group, each, a)) return false;
      for (unsigned strip = 0; strip < shape_.n() / kTileColumns; ++strip) {
        TileB b;
        TileD d = {};
        if (!read_b(strip, each, b)) return false;
        if (added_) sums(group, strip, d, false);
        backend().products->tile(&a[0][0], kTileInner, &b[0][0], &d[0][0], k_);
        sums(group, strip, d, true);
      }
    }
    return true;
  }

 private:
  bool wrong(const char* what) {
    fault(c_, i_, Outcome::kIllegalInstruction, shape_.word,
          "tcgen05.mma with instruction descriptor 0x%08x: %s", shape_.word, what);
    return false;
  }
  bool check() {
    const unsigned m = shape_.m(), n = shape_.n();
    if (!shape_.element(shape_.word >> 7 & 7, &type_a_) ||
        !shape_.element(shape_.word >> 10 & 7, &type_b_))
      return wrong("these types of elements are not supported");
    if (shape_.sparse()) return wrong("sparse matrices are not supported");
    const bool halves = shape_.kind == TensorKind::kF16 || shape_.kind == TensorKind::kF8F6F4;
    if (shape_.kind == TensorKind::kI8 ? shape_.sums() != 2
                                       : shape_.sums() != 1 && !(halves && shape_.sums() == 0))
      return wrong("this type of sums is not supported");
    if ((m != 64 && m != 128) || n == 0 || n > 256 || (m == 128 && n % 16 != 0))
      return wrong("there are no such dimensions");
    bits_ = element_bits(type_a_);
    k_ = kPieces * kPiece * 8 / bits_;
    if (bits_ == 32 && (shape_.columns_a() || shape_.rows_b()))
      return wrong("transposed tf32 is not supported");
    if (in_memory_ && shape_.columns_a()) return wrong("a is transposed in tensor memory");
    if (!width(b_, &width_b_) || (!in_memory_ && !width(a_, &width_a_)))
      return wrong("a swizzle in pieces of 32 bytes is not supported");
    if ((d_ >> 16) + (m == 128 ? 128 : 112) > kTensorLanes)
      return wrong("d begins at a wrong lane");
    if (in_memory_ && ((a_ >> 16) + (m == 128 ? 128 : 112) > kTensorLanes))
      return wrong("a begins at a wrong lane");
    if (in_memory_ && !allocated(c_, i_, a_ & 0xffff, k_ * bits_ / 32)) return false;
    return allocated(c_, i_, d_ & 0xffff, n);
  }
  // Of the swizzle of a matrix in shared memory.
  static bool width(uint64_t descriptor, uint32_t* out) {
    static const uint8_t kWidths[] = {1, 0, 8, 0, 4, 0, 2, 0};
    *out = kWidths[descriptor >> 61];
    return *out != 0;
  }
  // The lane of a row: of 64 rows, each warp has 16.
  uint32_t lane(uint32_t address, unsigned group, unsigned r) const {
    return (address >> 16) + group * (shape_.m() == 128 ? 16 : 32) + r;
  }

  bool outside(const SharedMatrix& m) {
    fault(c_, i_, Outcome::kIllegalAddress, m.address(),
          "a matrix at 0x%llx is outside of shared memory", (unsigned long long)m.address());
    return false;
  }
  void widen(Element e, const uint8_t* from, unsigned count, double* to) {
    backend().products->widen(e, from, count, to);
  }

  bool read_a(unsigned group, unsigned each, TileA a) {
    double values[kPiece];
    if (in_memory_) {
      uint32_t words[kPieces * kPiece / 4];
      for (unsigned r = 0; r < kTileRows; ++r) {
        for (unsigned k = 0; k < k_ * bits_ / 32; ++k)
          words[k] =
              column_of(*c_.block, (uint32_t)(a_ & 0xffff) + k)[lane((uint32_t)a_, group, r)];
        widen(type_a_, reinterpret_cast<uint8_t*>(words), k_, a[r]);
      }
    } else {
      SharedMatrix m(a_, width_a_, *c_.block);
      if (shape_.columns_a()) {
        for (unsigned k = 0; k < k_; ++k)
          for (unsigned r = 0; r < kTileRows; r += each) {
            const uint8_t* piece = m.outer_piece((group * kTileRows + r) / each, k);
            if (!piece) return outside(m);
            widen(type_a_, piece, each, values);
            for (unsigned t = 0; t < each; ++t) a[r + t][k] = values[t];
          }
      } else {
        for (unsigned r = 0; r < kTileRows; ++r)
          for (unsigned p = 0; p < kPieces; ++p) {
            const uint8_t* piece = m.inner_piece(group * kTileRows + r, p);
            if (!piece) return outside(m);
            widen(type_a_, piece, each, &a[r][p * each]);
          }
      }
    }
    if (shape_.negative_a())
      for (unsigned r = 0; r < kTileRows; ++r)
        for (unsigned k = 0; k < k_; ++k) a[r][k] = -a[r][k];
    return true;
  }

  bool read_b(unsigned strip, unsigned each, TileB b) {
    SharedMatrix m(b_, width_b_, *c_.block);
    const unsigned first = strip * kTileColumns;
    double values[kPiece];
    if (shape_.rows_b()) {  // a piece is one strip wide, or two
      for (unsigned k = 0; k < k_; ++k) {
        const uint8_t* piece = m.outer_piece(first / each, k);
        if (!piece) return outside(m);
        widen(type_b_, piece + first % each * bits_ / 8, kTileColumns, b[k]);
      }
    } else {
      for (unsigned n = 0; n < kTileColumns; ++n)
        for (unsigned p = 0; p < kPieces; ++p) {
          const uint8_t* piece = m.inner_piece(first + n, p);
          if (!piece) return outside(m);
          widen(type_b_, piece, each, values);
          for (unsigned t = 0; t < each; ++t) b[p * each + t][n] = values[t];
        }
    }
    if (shape_.negative_b())
      for (unsigned k = 0; k < k_; ++k)
        for (unsigned n = 0; n < kTileColumns; ++n) b[k][n] = -b[k][n];
    return true;
  }

  void sums(unsigned group, unsigned strip, TileD d, bool store) {
    const bool integers = shape_.sums() == 2, halves = shape_.sums() == 0;
    for (unsigned n = 0; n < kTileColumns; ++n) {
      uint32_t* column = column_of(*c_.block, (d_ & 0xffff) + strip * kTileColumns + n);
      for (unsigned r = 0; r < kTileRows; ++r) {
        uint32_t& word = column[lane(d_, group, r)];
        if (!store) {
          d[r][n] = integers ? (double)(int32_t)word
                    : halves ? (double)scalar::half_to_float((uint16_t)word)
                             : (double)scalar::bits<float>(word);
          if (divided_ != 0) d[r][n] /= (double)(1ull << divided_);
        } else if (integers) {
          double v = d[r][n];
          if (shape_.saturate()) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
          word = (uint32_t)(int64_t)v;
        } else {
          word = (uint32_t)raw_real(d[r][n], halves ? Element::kF16 : Element::kF32);
        }
      }
    }
  }

  Ctx& c_;
  const Ins* i_;
  const ProductShape shape_;
  const uint32_t d_;
  const bool in_memory_;
  const uint64_t a_, b_;
  const bool added_;
  const unsigned divided_;
  Element type_a_ = Element::kF16, type_b_ = Element::kF16;
  unsigned bits_ = 16, k_ = 16;
  uint32_t width_a_ = 1, width_b_ = 1;
};

}  // namespace

const Ins* op_tensor_product(Ctx& c, const Ins* i) {
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l] && !TensorProduct(c, i, l).run()) return nullptr;
  return i + 1;
}

const Ins* op_tensor_commit(Ctx& c, const Ins* i) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    const uint64_t barrier = async_address(c, i->a, i->sub & 1, true, l);
    if (i->b == kNone) {
      if (!one_arrives(c, i, barrier)) return nullptr;
      continue;
    }
    for (uint32_t blocks = reg32(c, i->b)[l] & 0xffff; blocks != 0; blocks &= blocks - 1)
      if (!one_arrives(c, i, in_block(barrier, (unsigned)__builtin_ctz(blocks)))) return nullptr;
  }
  return i + 1;
}

}  // namespace simgpu::ptx
