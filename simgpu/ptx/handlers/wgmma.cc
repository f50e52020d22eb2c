// Matrix products of a warpgroup, eight columns of d at a time. Sums are computed in double, which
// is exact or rounds once, as in matrix.cc.
#include "ptx/handlers/wgmma.h"

#include "ptx/handlers/fragments.h"
#include "ptx/handlers/shared_matrix.h"
#include "ptx/handlers/sparse.h"

namespace simgpu::ptx {

namespace {

constexpr unsigned kStrip = 8;  // columns

SharedMatrix matrix_of(uint64_t descriptor, const Block& b) {
  static const uint8_t kWidths[] = {1, 8, 4, 2};
  return SharedMatrix(descriptor, kWidths[descriptor >> 62], b);
}

// One warp's part of one instruction.
class Product {
 public:
  Product(Ctx& c, const Ins* i)
      : c_(c),
        i_(i),
        s_(GroupShape::unpack(i->imm)),
        rank_(c.warp->id % kGroupWarps),
        sums_(i->list),
        addends_(i->list + s_.sums()),
        registers_(i->list + 2 * s_.sums()),
        added_(predicate_mask(reg32(c, i->c)) != 0),
        b_(matrix_of(reg64(c, i->b)[0], *c.block)) {}

  const Ins* run() {
    if (s_.a == Element::kB1) return bits();
    TileA a;
    if (!read_a(a)) return nullptr;
    for (unsigned strip = 0; strip < s_.n / kTileColumns; ++strip) {
      TileB b;
      TileD d = {};
      if (!read_b(strip, b)) return nullptr;
      if (added_) read_sums(c_, addends_ + strip * each_strip_, s_.d, d);
      ops_.tile(&a[0][0], kTileInner, &b[0][0], &d[0][0], s_.k);
      write_sums(c_, sums_ + strip * each_strip_, s_.d, s_.saturate, d);
    }
    return i_ + 1;
  }

 private:
  bool outside(const SharedMatrix& m) {
    fault(c_, i_, Outcome::kIllegalAddress, m.address(),
          "a matrix at 0x%llx is outside of shared memory", (unsigned long long)m.address());
    return false;
  }

  bool read_a(TileA a) {
    if (i_->a == kNone)
      read_rows(c_, registers_, kGroupRegisters, s_.a, a);
    else if (!(s_.columns_a ? columns_of_a(a) : rows_of_a(a)))
      return false;
    if (s_.sparse) Sparsity(reg32(c_, i_->e), s_.a, s_.k, s_.selector).expand(a, s_.stored());
    if (s_.negative_a)
      for (unsigned r = 0; r < kGroupRows; ++r)
        for (unsigned k = 0; k < s_.k; ++k) a[r][k] = -a[r][k];
    return true;
  }
  bool rows_of_a(TileA a) {
    SharedMatrix m = matrix_of(reg64(c_, i_->a)[0], *c_.block);
    const unsigned each = kPiece * 8 / element_bits(s_.a);
    for (unsigned r = 0; r < kGroupRows; ++r)
      for (unsigned p = 0; p < kPieces; ++p) {
        const uint8_t* piece = m.inner_piece(rank_ * kGroupRows + r, p);
        if (!piece) return outside(m);
        ops_.widen(s_.a, piece, each, &a[r][p * each]);
      }
    return true;
  }
  bool columns_of_a(TileA a) {
    SharedMatrix m = matrix_of(reg64(c_, i_->a)[0], *c_.block);
    const unsigned each = kPiece * 8 / element_bits(s_.a);
    for (unsigned p = 0; p < kGroupRows / each; ++p)
      for (unsigned k = 0; k < s_.stored(); ++k) {
        const uint8_t* piece = m.outer_piece(rank_ * kGroupRows / each + p, k);
        if (!piece) return outside(m);
        double values[kPiece];
        ops_.widen(s_.a, piece, each, values);
        for (unsigned t = 0; t < each; ++t) a[p * each + t][k] = values[t];
      }
    return true;
  }

  bool read_b(unsigned strip, TileB b) {
    const unsigned each = kPiece * 8 / element_bits(s_.b);
    if (s_.rows_b) {  // a piece is a strip wide
      for (unsigned k = 0; k < s_.k; ++k) {
        const uint8_t* piece = b_.outer_piece(strip, k);
        if (!piece) return outside(b_);
        ops_.widen(s_.b, piece, kTileColumns, b[k]);
      }
    } else {
      for (unsigned n = 0; n < kTileColumns; ++n)
        for (unsigned p = 0; p < s_.k / each; ++p) {
          const uint8_t* piece = b_.inner_piece(strip * kTileColumns + n, p);
          if (!piece) return outside(b_);
          double values[kPiece];
          ops_.widen(s_.b, piece, each, values);
          for (unsigned t = 0; t < each; ++t) b[p * each + t][n] = values[t];
        }
    }
    if (s_.negative_b)
      for (unsigned k = 0; k < s_.k; ++k)
        for (unsigned n = 0; n < kTileColumns; ++n) b[k][n] = -b[k][n];
    return true;
  }

  // Single bits: how many are set in both.
  const Ins* bits() {
    constexpr unsigned kWords = kPiece * kPieces / 4;
    uint32_t a[kGroupRows][kWords];
    for (unsigned q = 0; q < kGroupRegisters && i_->a == kNone; ++q)
      for (unsigned l = 0; l < kLanes; ++l)
        a[l / 4 + 8 * (q & 1)][l % 4 + 4 * (q >> 1)] = reg32(c_, registers_[q])[l];
    if (i_->a != kNone) {
      SharedMatrix m = matrix_of(reg64(c_, i_->a)[0], *c_.block);
      for (unsigned r = 0; r < kGroupRows; ++r)
        for (unsigned p = 0; p < kPieces; ++p) {
          const uint8_t* piece = m.inner_piece(rank_ * kGroupRows + r, p);
          if (!piece) return outside(m), nullptr;
          memcpy(&a[r][p * kWords / kPieces], piece, kPiece);
        }
    }
    for (unsigned strip = 0; strip < s_.n / kTileColumns; ++strip) {
      TileD d = {};
      if (added_) read_sums(c_, addends_ + strip * each_strip_, s_.d, d);
      for (unsigned n = 0; n < kTileColumns; ++n) {
        uint32_t b[kWords];
        for (unsigned p = 0; p < kPieces; ++p) {
          const uint8_t* piece = b_.inner_piece(strip * kTileColumns + n, p);
          if (!piece) return outside(b_), nullptr;
          memcpy(&b[p * kWords / kPieces], piece, kPiece);
        }
        for (unsigned r = 0; r < kGroupRows; ++r)
          for (unsigned w = 0; w < kWords; ++w) d[r][n] += __builtin_popcount(a[r][w] & b[w]);
      }
      write_sums(c_, sums_ + strip * each_strip_, s_.d, false, d);
    }
    return i_ + 1;
  }

  Ctx& c_;
  const Ins* i_;
  const GroupShape s_;
  const ProductOps& ops_ = *backend().products;
  const unsigned rank_;
  const unsigned each_strip_ = s_.d == Element::kF16 ? 2 : 4;  // registers
  const uint32_t *sums_, *addends_, *registers_;
  const bool added_;
  SharedMatrix b_;
};

// Whether all lanes have the same value as lane 0.
bool alike(Ctx& c, uint32_t operand) {
  const uint64_t* v = reg64(c, operand);
  for (unsigned l = 1; l < kLanes; ++l)
    if (v[l] != v[0]) return false;
  return true;
}

}  // namespace

const Ins* op_wgmma(Ctx& c, const Ins* i) {
  const Ins* wait = nullptr;
  if (!whole_warp(c, i, &wait)) return wait;
  if (c.warp->id / kGroupWarps * kGroupWarps + kGroupWarps > c.block->warp_count)
    return fault(c, i, Outcome::kIllegalInstruction, 0,
                 "warp %u of %u is in no complete warpgroup of four", c.warp->id,
                 c.block->warp_count);
  if (!alike(c, i->b) || (i->a != kNone && !alike(c, i->a)))
    return fault(c, i, Outcome::kIllegalInstruction, 0,
                 "lanes of a warp have different matrix descriptors");
  const uint32_t added = predicate_mask(reg32(c, i->c));
  if (added != 0 && added != ~0u)
    return fault(c, i, Outcome::kIllegalInstruction, 0,
                 "lanes of a warp differ on whether the sums are added");
  return Product(c, i).run();
}

}  // namespace simgpu::ptx
