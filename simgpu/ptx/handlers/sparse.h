// Sparse matrices of mma and wgmma: of each few neighbours in a row of a, half are there, and
// metadata in registers tells which. A chunk is 2 columns of elements of 32 bits, 4 of 16 and of 8
// bits and 8 of 4 bits, of which pairs are there or not; each has 4 bits of metadata.
#pragma once

#include "ptx/handlers/fragments.h"

namespace simgpu::ptx {

class Sparsity {
 public:
  // `k`: columns of a; `selector`: which of the lanes of four have the metadata.
  Sparsity(const uint32_t* metadata, Element e, unsigned k, unsigned selector)
      : metadata_(metadata),
        bits_(element_bits(e)),
        chunk_(bits_ == 32  ? 2
               : bits_ == 4 ? 8
                            : 4),
        first_(selector * lanes(e, k)) {}

  // How many of each four lanes have metadata of a; the selector tells which.
  static unsigned lanes(Element e, unsigned k) {
    const unsigned bits = element_bits(e);
    return k / (bits == 32 ? 8 : bits == 4 ? 32 : 16);
  }

  // The column of element `j` of those that row `row` of 16 has.
  unsigned column(unsigned row, unsigned j) const {
    const unsigned chunk = j / (chunk_ / 2), within = j % (chunk_ / 2), half = row / 8;
    const unsigned lane = row % 8 * 4 + first_;
    const unsigned code = (bits_ >= 16 ? metadata_[lane + chunk / 4] >> (16 * half + chunk % 4 * 4)
                                       : metadata_[lane + chunk / 8 * 2 + half] >> chunk % 8 * 4) &
                          15;
    switch (bits_) {
      case 32:  // 4: the first, 14: the second
        return chunk * 2 + (code >> 3);
      case 4:
        return chunk * 8 + (code >> within / 2 * 2 & 3) * 2 + within % 2;
      default:
        return chunk * 4 + (code >> 2 * within & 3);
    }
  }

  // 16 rows of which `stored` elements are there, to rows of twice as many.
  template <class T, size_t N>
  void expand(T (*rows)[N], unsigned stored) const {
    for (unsigned r = 0; r < kTileRows; ++r) {
      T wide[N] = {};
      for (unsigned j = 0; j < stored; ++j) wide[column(r, j)] = rows[r][j];
      memcpy(rows[r], wide, 2 * stored * sizeof(T));
    }
  }

 private:
  const uint32_t* metadata_;
  const unsigned bits_, chunk_, first_;
};

}  // namespace simgpu::ptx
