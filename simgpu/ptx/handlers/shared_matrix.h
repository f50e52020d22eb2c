// Matrices in shared memory as the descriptors of wgmma and tcgen05.mma tell of them.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// Bytes that lie together, and how many such pieces are a row of a or a column of b.
inline constexpr unsigned kPiece = 16, kPieces = 2;

// Bits 0 to 13 of a descriptor say where the matrix begins, 16 to 29 the leading dimension's offset
// and 32 to 45 the stride dimension's, all in units of 16 bytes; 49 to 51 the base offset; the
// highest ones the swizzle. It consists of pieces of 16 bytes: a line has as many as the swizzle is
// wide, eight lines are an atom.
class SharedMatrix {
 public:
  // `width`: of the swizzle, in pieces; 1 without.
  SharedMatrix(uint64_t descriptor, uint32_t width, const Block& b)
      : memory_(b.shared),
        bytes_(b.shared_bytes),
        begin_(field(descriptor)),
        leading_(field(descriptor >> 16)),
        stride_(field(descriptor >> 32)),
        base_((uint32_t)(descriptor >> 49 & 7)),
        width_(width) {}

  // Piece `k` of the inner dimension of a row (of a column of b); null: outside shared memory.
  const uint8_t* inner_piece(unsigned row, unsigned k) {
    return piece(row / 8 * stride_ + row % 8 * width_ * kPiece + k % width_ * kPiece +
                 k / width_ * leading_);
  }
  // Piece `m` of the outer dimension, at the inner dimension's `k`.
  const uint8_t* outer_piece(unsigned m, unsigned k) {
    const uint32_t far_m = width_ == 1 ? stride_ : leading_;
    const uint32_t far_k = width_ == 1 ? leading_ : stride_;
    return piece(m % width_ * kPiece + m / width_ * far_m + k % 8 * width_ * kPiece +
                 k / 8 * far_k);
  }
  // Where the piece of the last request would be.
  uint64_t address() const { return kSharedWindow | address_; }

 private:
  static uint32_t field(uint64_t v) { return (uint32_t)(v & 0x3fff) << 4; }
  const uint8_t* piece(uint32_t offset) {
    const uint32_t linear = begin_ + offset;
    address_ = linear ^ (((linear >> 7) - base_) & (width_ - 1)) * kPiece;
    return address_ + kPiece <= bytes_ ? memory_ + address_ : nullptr;
  }

  const uint8_t* memory_;
  uint32_t bytes_, begin_, leading_, stride_, base_, width_, address_ = 0;
};

}  // namespace simgpu::ptx
