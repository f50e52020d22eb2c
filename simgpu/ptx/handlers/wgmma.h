// Matrix products of a warpgroup (wgmma.cc): four warps, each of which has 16 of the 64 rows of a
// and d. lower_wgmma.cc fills these in. A product is finished when its instruction was executed, so
// a wait for its group finds it done. The executing warp needs no data of the three others.
#pragma once

#include "ptx/handlers/matrix.h"

namespace simgpu::ptx {

inline constexpr unsigned kGroupWarps = 4;
inline constexpr unsigned kGroupRows = 16;  // of a and d that a warp has

// Ins::imm of op_wgmma: d[64][n] = (d +) a[64][k] * b[k][n]. A product takes 32 bytes of each row
// of a and of each column of b; of a sparse a, 64 bytes of each column of b.
struct GroupShape {
  uint16_t n = 0, k = 0;
  Element a = Element::kF16, b = Element::kF16, d = Element::kF16;
  bool saturate = false;
  bool negative_a = false, negative_b = false;
  // Whether neighbouring elements in shared memory belong to one column of a, or one row of b
  // (M-major, N-major), instead of following the inner dimension (K-major).
  bool columns_a = false, rows_b = false;
  bool sparse = false;  // half of a's elements are there (sparse.h)
  uint8_t selector = 0;
  int64_t pack() const {
    return (int64_t)((uint64_t)n | (uint64_t)k << 16 | (uint64_t)a << 32 | (uint64_t)b << 36 |
                     (uint64_t)d << 40 | (uint64_t)saturate << 44 | (uint64_t)negative_a << 45 |
                     (uint64_t)negative_b << 46 | (uint64_t)columns_a << 47 |
                     (uint64_t)rows_b << 48 | (uint64_t)sparse << 49 | (uint64_t)selector << 50);
  }
  static GroupShape unpack(int64_t p) {
    const auto v = (uint64_t)p;
    GroupShape s;
    s.n = (uint16_t)v;
    s.k = (uint16_t)(v >> 16);
    s.a = (Element)(v >> 32 & 15);
    s.b = (Element)(v >> 36 & 15);
    s.d = (Element)(v >> 40 & 15);
    s.saturate = v >> 44 & 1;
    s.negative_a = v >> 45 & 1;
    s.negative_b = v >> 46 & 1;
    s.columns_a = v >> 47 & 1;
    s.rows_b = v >> 48 & 1;
    s.sparse = v >> 49 & 1;
    s.selector = v >> 50 & 3;
    return s;
  }
  unsigned stored() const { return sparse ? k / 2u : k; }  // elements of a row of a that are there
  // A thread's registers of d.
  unsigned sums() const { return n / 2u / (d == Element::kF16 ? 2u : 1u); }
};
inline constexpr unsigned kGroupRegisters = 4;  // a thread's registers of a

// list: registers of d to write, the same to read, and, unless a lies in shared memory, those of a.
// a: the descriptor of a, or kNone; b: that of b; c: predicate, whether d is added; e: metadata of
// a sparse a.
const Ins* op_wgmma(Ctx&, const Ins*);

}  // namespace simgpu::ptx
