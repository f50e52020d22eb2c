// Matrix instructions of a warp (matrix.cc); lower_matrix.cc fills these in. They need all lanes of
// the warp: a group of lanes that arrives first waits for the others at the instruction.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

enum class Element : uint8_t {
  kF16,
  kF32,
  kF64,
  kBF16,
  kTF32,
  kS8,
  kU8,
  kS4,
  kU4,
  kB1,
  kE4M3,
  kE5M2,
  kS32,
  kE3M2,  // these three: in a byte; 4 bits of E2M1 are its bits 2 to 5
  kE2M3,
  kE2M1,
  kPackedE2M1,
};
inline constexpr const char* kElementNames[] = {"f16", "f32",  "f64",  "bf16", "tf32", "s8",
                                                "u8",  "s4",   "u4",   "b1",   "e4m3", "e5m2",
                                                "s32", "e3m2", "e2m3", "e2m1", nullptr};
unsigned element_bits(Element);

// The values of the 256 numbers of a floating-point type of 8 bits, or of fewer in a byte; of
// packed E2M1, of its 16 numbers.
const float* small_floats(Element);

// Conversions and products of matrix elements, many at once (product_ops.cc).
struct ProductOps {
  // `count` contiguous elements, a multiple of 8 for those of 16 bits, even for those of 4.
  void (*widen)(Element, const void* from, unsigned count, double* to);
  // d[16][8] += a[16][inner] * b[inner][8]; a's rows lie `pitch` apart.
  void (*tile)(const double* a, unsigned pitch, const double* b, double* d, unsigned inner);
  // To floats, with PTX's NaN.
  void (*narrow)(const double* from, unsigned count, uint32_t* to);
};

// What each row of a and each column of b is multiplied by, in equal parts of the inner dimension.
struct BlockScales {
  uint8_t parts;  // 0: none
  bool e4m3;      // else powers of two
};

enum class MatrixRole : uint8_t { kA, kB, kC, kD };

// Ins::imm of op_mma, op_wmma_load and op_wmma_store. A matrix is d[m][n] += a[m][k] * b[k][n].
struct MatrixShape {
  uint8_t m, n;
  uint16_t k;
  Element a, b, c, d;
  bool opaque;      // wmma: where a fragment's elements lie is ours to choose
  bool saturate;    // integers
  bool exclusive;   // of single bits: xor instead of and
  bool columns;     // wmma.load and store: column by column
  MatrixRole role;  // of these
  bool sparse;      // mma: half of a's elements are there (sparse.h)
  uint8_t selector;
  BlockScales scales;
  int64_t pack() const {
    return (int64_t)((uint64_t)m | (uint64_t)n << 6 | (uint64_t)k << 12 | (uint64_t)a << 24 |
                     (uint64_t)b << 29 | (uint64_t)c << 34 | (uint64_t)d << 39 |
                     (uint64_t)opaque << 44 | (uint64_t)saturate << 45 | (uint64_t)exclusive << 46 |
                     (uint64_t)columns << 47 | (uint64_t)role << 48 | (uint64_t)sparse << 50 |
                     (uint64_t)selector << 51 | (uint64_t)scales.parts << 53 |
                     (uint64_t)scales.e4m3 << 56);
  }
  static MatrixShape unpack(int64_t p) {
    const auto v = (uint64_t)p;
    MatrixShape s{};
    s.m = v & 63;
    s.n = v >> 6 & 63;
    s.k = v >> 12 & 4095;
    s.a = (Element)(v >> 24 & 31);
    s.b = (Element)(v >> 29 & 31);
    s.c = (Element)(v >> 34 & 31);
    s.d = (Element)(v >> 39 & 31);
    s.opaque = v >> 44 & 1;
    s.saturate = v >> 45 & 1;
    s.exclusive = v >> 46 & 1;
    s.columns = v >> 47 & 1;
    s.role = (MatrixRole)(v >> 48 & 3);
    s.sparse = v >> 50 & 1;
    s.selector = v >> 51 & 3;
    s.scales = {(uint8_t)(v >> 53 & 7), (v >> 56 & 1) != 0};
    return s;
  }
  Element element(MatrixRole r) const {
    return r == MatrixRole::kA ? a : r == MatrixRole::kB ? b : r == MatrixRole::kC ? c : d;
  }
  unsigned rows(MatrixRole r) const { return r == MatrixRole::kB ? k : m; }
  // Of those elements that are there.
  unsigned columns_of(MatrixRole r) const { return r != MatrixRole::kA ? n : sparse ? k / 2u : k; }
  // The elements of a fragment that one lane holds.
  unsigned slots(MatrixRole r) const { return rows(r) * columns_of(r) / kLanes; }
  unsigned registers(MatrixRole r) const;
};

// Ins::list; what is absent is kNone.
enum MatrixList : uint8_t {
  kMatrixD = 0,
  kMatrixA = 8,
  kMatrixB = 16,
  kMatrixC = 24,
  kMatrixMetadata = 32,  // of sparse matrices
  kMatrixScaleA = 33,    // a register of scales, the first byte of it and which lanes have it
  kMatrixScaleB = 36,
  kMatrixCount = 39,
};
const Ins* op_mma(Ctx&, const Ins*);
// a: address (sub 1: of 32 bits, 2: shared), b: elements from row to row; list: the fragment.
const Ins* op_wmma_load(Ctx&, const Ins*);
const Ins* op_wmma_store(Ctx&, const Ins*);
// 8 x 8 matrices of 16 bits, n of them, whose rows lie where lanes 8 i to 8 i + 7 say. a: address
// as above; sub 4: transposed, 8: stored; list: registers.
const Ins* op_ldmatrix(Ctx&, const Ins*);
// The same of bytes, whose rows of 16 lie where n lanes say; imm: a ByteMatrix.
enum class ByteShape : uint8_t { kRows8, kRows16, kStore };  // ldmatrix m8n16, m16n16; stmatrix
struct ByteMatrix {
  ByteShape shape;
  uint8_t packed;  // bits of an element in memory: 8, or fewer that lie at the front of the row
  uint8_t count;   // matrices
  int64_t pack() const { return (int64_t)shape | (int64_t)packed << 8 | (int64_t)count << 16; }
  static ByteMatrix unpack(int64_t v) {
    return {(ByteShape)(v & 255), (uint8_t)(v >> 8 & 255), (uint8_t)(v >> 16 & 255)};
  }
  unsigned rows() const { return shape == ByteShape::kRows16 ? 16 : 8; }  // in memory
  unsigned registers() const { return shape == ByteShape::kRows16 ? 2 : 1; }
};
const Ins* op_byte_matrix(Ctx&, const Ins*);
// d: the matrix in a, transposed.
const Ins* op_movmatrix(Ctx&, const Ins*);

// Null when every lane of the warp is at i; else the value to return, because some wait for the
// others.
bool whole_warp(Ctx& c, const Ins* i, const Ins** wait);

}  // namespace simgpu::ptx
