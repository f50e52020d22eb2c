// Matrix products of a warpgroup, eight columns of d at a time. Sums are made in double, which
// holds each of them exactly or rounds once, as in matrix.cc.
#include "ptx/handlers/wgmma.h"

#include "ptx/handlers/elements.h"

namespace simgpu::ptx {

namespace {

constexpr unsigned kStrip = 8;                // columns
constexpr unsigned kPiece = 16, kPieces = 2;  // bytes that lie together, and how many make a row
constexpr unsigned kMostInner = 32;           // of numbers; bits are counted in words

// A matrix in shared memory as its descriptor tells: bits 0 to 13 where it begins, 16 to 29 the
// leading dimension's offset and 32 to 45 the stride dimension's, all in units of 16 bytes; 49 to
// 51 the base offset; 62 and 63 the swizzle. It consists of pieces of 16 bytes: a line has as many
// as the swizzle is wide, eight lines are an atom.
class SharedMatrix {
 public:
  SharedMatrix(uint64_t descriptor, const Block& b)
      : memory_(b.shared),
        bytes_(b.shared_bytes),
        begin_(field(descriptor)),
        leading_(field(descriptor >> 16)),
        stride_(field(descriptor >> 32)),
        base_((uint32_t)(descriptor >> 49 & 7)) {
    static const uint8_t kWidths[] = {1, 8, 4, 2};
    width_ = kWidths[descriptor >> 62];
  }

  // Piece `k` of the inner dimension of a row (of a column of b); null: outside shared memory.
  const uint8_t* inner_piece(unsigned row, unsigned k) {
    return piece(row / 8 * stride_ + row % 8 * width_ * kPiece +
                 k * (width_ == 1 ? leading_ : kPiece));
  }
  // Piece `m` of the outer dimension, at the inner dimension's `k`.
  const uint8_t* outer_piece(unsigned m, unsigned k) {
    const uint32_t far_m = width_ == 1 ? stride_ : leading_;
    const uint32_t far_k = width_ == 1 ? leading_ : stride_;
    return piece(m % width_ * kPiece + m / width_ * far_m + k % 8 * width_ * kPiece +
                 k / 8 * far_k);
  }
  // Where the piece would be that was asked for last.
  uint64_t address() const { return kSharedWindow | address_; }

 private:
  static uint32_t field(uint64_t v) { return (uint32_t)(v & 0x3fff) << 4; }
  const uint8_t* piece(uint32_t offset) {
    const uint32_t linear = begin_ + offset;
    address_ = linear ^ (((linear >> 7) - base_) & (width_ - 1)) * kPiece;
    return address_ + kPiece <= bytes_ ? memory_ + address_ : nullptr;
  }

  const uint8_t* memory_;
  uint32_t bytes_, begin_, leading_, stride_, base_, width_ = 1, address_ = 0;
};

uint64_t element_of(const uint8_t* piece, unsigned index, unsigned bits) {
  uint64_t v = 0;
  memcpy(&v, piece + index * bits / 8, bits / 8);
  return v;
}

// As with_reader of elements.h, integers included.
template <class F>
void with_numbers(Element e, F f) {
  if (e == Element::kS8) return f([](uint64_t v) { return (double)(int8_t)v; });
  if (e == Element::kU8) return f([](uint64_t v) { return (double)(uint8_t)v; });
  if (e == Element::kS32) return f([](uint64_t v) { return (double)(int32_t)v; });
  with_reader(e, f);
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
        b_(reg64(c, i->b)[0], *c.block) {}

  const Ins* run() {
    if (s_.a == Element::kB1) return bits();
    double a[kGroupRows][kMostInner];
    if (!read_a(a)) return nullptr;
    for (unsigned strip = 0; strip < s_.n / kStrip; ++strip) {
      double b[kMostInner][kStrip], d[kGroupRows][kStrip];
      if (!read_b(strip, b)) return nullptr;
      read_sums(strip, d);
      for (unsigned r = 0; r < kGroupRows; ++r)
        for (unsigned k = 0; k < s_.k; ++k)
          for (unsigned n = 0; n < kStrip; ++n) d[r][n] += a[r][k] * b[k][n];
      write_sums(strip, d);
    }
    return i_ + 1;
  }

 private:
  bool outside(const SharedMatrix& m) {
    fault(c_, i_, Outcome::kIllegalAddress, m.address(),
          "a matrix at 0x%llx is outside of shared memory", (unsigned long long)m.address());
    return false;
  }

  bool read_a(double a[kGroupRows][kMostInner]) {
    bool good = true;
    with_numbers(s_.a, [&](auto number) {
      good = i_->a == kNone ? from_registers(a, number)
             : s_.columns_a ? columns_of_a(a, number)
                            : rows_of_a(a, number);
    });
    if (s_.negative_a)
      for (unsigned r = 0; r < kGroupRows; ++r)
        for (unsigned k = 0; k < s_.k; ++k) a[r][k] = -a[r][k];
    return good;
  }
  // As of mma: a register has what lies side by side in a row, and each fourth lane begins one.
  template <class F>
  bool from_registers(double a[kGroupRows][kMostInner], F number) {
    const unsigned width = element_bits(s_.a), each = 32 / width;
    for (unsigned q = 0; q < kGroupRegisters; ++q) {
      const uint32_t* words = reg32(c_, registers_[q]);
      for (unsigned l = 0; l < kLanes; ++l)
        for (unsigned t = 0; t < each; ++t)
          a[l / 4 + 8 * (q & 1)][(l % 4 + 4 * (q >> 1)) * each + t] =
              number((words[l] >> t * width) & (uint32_t)((1ull << width) - 1));
    }
    return true;
  }
  template <class F>
  bool rows_of_a(double a[kGroupRows][kMostInner], F number) {
    SharedMatrix m(reg64(c_, i_->a)[0], *c_.block);
    const unsigned width = element_bits(s_.a), each = kPiece * 8 / width;
    for (unsigned r = 0; r < kGroupRows; ++r)
      for (unsigned p = 0; p < kPieces; ++p) {
        const uint8_t* piece = m.inner_piece(rank_ * kGroupRows + r, p);
        if (piece == nullptr) return outside(m);
        for (unsigned t = 0; t < each; ++t)
          a[r][p * each + t] = number(element_of(piece, t, width));
      }
    return true;
  }
  template <class F>
  bool columns_of_a(double a[kGroupRows][kMostInner], F number) {
    SharedMatrix m(reg64(c_, i_->a)[0], *c_.block);
    const unsigned width = element_bits(s_.a), each = kPiece * 8 / width;
    for (unsigned p = 0; p < kGroupRows / each; ++p)
      for (unsigned k = 0; k < s_.k; ++k) {
        const uint8_t* piece = m.outer_piece(rank_ * kGroupRows / each + p, k);
        if (piece == nullptr) return outside(m);
        for (unsigned t = 0; t < each; ++t)
          a[p * each + t][k] = number(element_of(piece, t, width));
      }
    return true;
  }

  bool read_b(unsigned strip, double b[kMostInner][kStrip]) {
    bool good = true;
    with_numbers(s_.b, [&](auto number) {
      const unsigned width = element_bits(s_.b), each = kPiece * 8 / width;
      if (s_.rows_b) {  // a piece is a strip wide
        for (unsigned k = 0; k < s_.k && good; ++k) {
          const uint8_t* piece = b_.outer_piece(strip, k);
          if (piece == nullptr) good = outside(b_);
          for (unsigned n = 0; n < kStrip && good; ++n)
            b[k][n] = number(element_of(piece, n, width));
        }
        return;
      }
      for (unsigned n = 0; n < kStrip && good; ++n)
        for (unsigned p = 0; p < kPieces && good; ++p) {
          const uint8_t* piece = b_.inner_piece(strip * kStrip + n, p);
          if (piece == nullptr) good = outside(b_);
          for (unsigned t = 0; t < each && good; ++t)
            b[p * each + t][n] = number(element_of(piece, t, width));
        }
    });
    if (s_.negative_b)
      for (unsigned k = 0; k < s_.k; ++k)
        for (unsigned n = 0; n < kStrip; ++n) b[k][n] = -b[k][n];
    return good;
  }

  // Calls f(register, row, column, part) for each of the strip's elements of d that a lane has.
  template <class F>
  void each_sum(unsigned strip, F f) {
    const unsigned each = s_.d == Element::kF16 ? 2 : 1, count = 4 / each;
    for (unsigned q = 0; q < count; ++q)
      for (unsigned l = 0; l < kLanes; ++l)
        for (unsigned t = 0; t < each; ++t) {
          const unsigned slot = q * each + t;
          f(strip * count + q, l, l / 4 + 8 * (slot >> 1), l % 4 * 2 + (slot & 1), t);
        }
  }
  void read_sums(unsigned strip, double d[kGroupRows][kStrip]) {
    if (!added_) {
      memset(d, 0, sizeof(double) * kGroupRows * kStrip);
      return;
    }
    with_numbers(s_.d, [&](auto number) {
      each_sum(strip, [&](unsigned q, unsigned lane, unsigned row, unsigned column, unsigned part) {
        const uint32_t word = reg32(c_, addends_[q])[lane];
        d[row][column] = number(s_.d == Element::kF16 ? word >> part * 16 & 0xffff : word);
      });
    });
  }
  uint32_t raw_sum(double v) const {
    if (s_.d != Element::kS32) return (uint32_t)raw_real(v, s_.d);
    if (s_.saturate) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
    return (uint32_t)(int64_t)v;
  }
  void write_sums(unsigned strip, const double d[kGroupRows][kStrip]) {
    each_sum(strip, [&](unsigned q, unsigned lane, unsigned row, unsigned column, unsigned part) {
      uint32_t& word = reg32(c_, sums_[q])[lane];
      const uint32_t v = raw_sum(d[row][column]);
      if (s_.d != Element::kF16)
        word = v;
      else
        word = part == 0 ? v : word | v << 16;
    });
  }

  // Single bits: how many are set in both.
  const Ins* bits() {
    constexpr unsigned kWords = kPiece * kPieces / 4;
    uint32_t a[kGroupRows][kWords];
    for (unsigned q = 0; q < kGroupRegisters && i_->a == kNone; ++q)
      for (unsigned l = 0; l < kLanes; ++l)
        a[l / 4 + 8 * (q & 1)][l % 4 + 4 * (q >> 1)] = reg32(c_, registers_[q])[l];
    if (i_->a != kNone) {
      SharedMatrix m(reg64(c_, i_->a)[0], *c_.block);
      for (unsigned r = 0; r < kGroupRows; ++r)
        for (unsigned p = 0; p < kPieces; ++p) {
          const uint8_t* piece = m.inner_piece(rank_ * kGroupRows + r, p);
          if (piece == nullptr) return outside(m), nullptr;
          memcpy(&a[r][p * kWords / kPieces], piece, kPiece);
        }
    }
    for (unsigned strip = 0; strip < s_.n / kStrip; ++strip) {
      double d[kGroupRows][kStrip];
      read_sums(strip, d);
      for (unsigned n = 0; n < kStrip; ++n) {
        uint32_t b[kWords];
        for (unsigned p = 0; p < kPieces; ++p) {
          const uint8_t* piece = b_.inner_piece(strip * kStrip + n, p);
          if (piece == nullptr) return outside(b_), nullptr;
          memcpy(&b[p * kWords / kPieces], piece, kPiece);
        }
        for (unsigned r = 0; r < kGroupRows; ++r)
          for (unsigned w = 0; w < kWords; ++w) d[r][n] += __builtin_popcount(a[r][w] & b[w]);
      }
      write_sums(strip, d);
    }
    return i_ + 1;
  }

  Ctx& c_;
  const Ins* i_;
  const GroupShape s_;
  const unsigned rank_;
  const uint32_t *sums_, *addends_, *registers_;
  const bool added_;
  SharedMatrix b_;
};

// Whether all lanes have lane 0's value.
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
