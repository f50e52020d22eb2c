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
};
inline constexpr const char* kElementNames[] = {"f16",  "f32",  "f64", "bf16", "tf32",
                                                "s8",   "u8",   "s4",  "u4",   "b1",
                                                "e4m3", "e5m2", "s32", nullptr};
unsigned element_bits(Element);

// The values of the 256 numbers of an 8-bit floating-point type.
const float* small_floats(Element);

// Conversions and products of matrix elements, many at once (product_ops.cc).
struct ProductOps {
  // `count` contiguous elements, a multiple of 8 for those of 16 bits.
  void (*widen)(Element, const void* from, unsigned count, double* to);
  // d[16][8] += a[16][inner] * b[inner][8]; a's rows lie `pitch` apart.
  void (*tile)(const double* a, unsigned pitch, const double* b, double* d, unsigned inner);
  // To floats, with PTX's NaN.
  void (*narrow)(const double* from, unsigned count, uint32_t* to);
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
  int64_t pack() const {
    return (int64_t)((uint64_t)m | (uint64_t)n << 8 | (uint64_t)k << 16 | (uint64_t)a << 32 |
                     (uint64_t)b << 36 | (uint64_t)c << 40 | (uint64_t)d << 44 |
                     (uint64_t)opaque << 48 | (uint64_t)saturate << 49 | (uint64_t)exclusive << 50 |
                     (uint64_t)columns << 51 | (uint64_t)role << 52);
  }
  static MatrixShape unpack(int64_t p) {
    const auto v = (uint64_t)p;
    return {(uint8_t)v,
            (uint8_t)(v >> 8),
            (uint16_t)(v >> 16),
            (Element)(v >> 32 & 15),
            (Element)(v >> 36 & 15),
            (Element)(v >> 40 & 15),
            (Element)(v >> 44 & 15),
            (v >> 48 & 1) != 0,
            (v >> 49 & 1) != 0,
            (v >> 50 & 1) != 0,
            (v >> 51 & 1) != 0,
            (MatrixRole)(v >> 52 & 3)};
  }
  Element element(MatrixRole r) const {
    return r == MatrixRole::kA ? a : r == MatrixRole::kB ? b : r == MatrixRole::kC ? c : d;
  }
  unsigned rows(MatrixRole r) const { return r == MatrixRole::kB ? k : m; }
  unsigned columns_of(MatrixRole r) const { return r == MatrixRole::kA ? k : n; }
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
  kMatrixCount = 32,
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
