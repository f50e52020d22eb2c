// Tensor memory of a block (tcgen05), and the products whose sums lie there. lower_tensor_core.cc
// fills these in. All is done when its instruction was executed, so a wait finds it done.
//
// An address is a lane in the upper half and a column in the lower one. Each warp of four reads and
// writes 32 lanes; a product has a lane for each row.
#pragma once

#include "ptx/handlers/matrix.h"

namespace simgpu::ptx {

inline constexpr unsigned kTensorLanes = 128, kTensorColumns = 512;
inline constexpr unsigned kTensorUnit = 32;  // columns that are given out together
inline constexpr uint32_t kTensorBytes = kTensorLanes * kTensorColumns * 4;

// a: address in shared memory that gets the address (sub 1: of 32 bits), b: columns.
const Ins* op_tensor_alloc(Ctx&, const Ins*);
// a: address, b: columns.
const Ins* op_tensor_dealloc(Ctx&, const Ins*);

// How registers of a warp lie in lanes and columns; a shape is repeated along the columns.
enum class TensorTile : uint8_t { k32x32b, k16x32bx2, k16x64b, k16x128b, k16x256b };
struct TensorMove {
  TensorTile tile;
  bool store;
  uint16_t split;  // k16x32bx2: where the columns of the upper 16 threads begin
  bool halves;     // a register has the low halves of two columns
  int64_t pack() const {
    return (int64_t)tile | (store ? 256 : 0) | (halves ? 512 : 0) | (int64_t)split << 16;
  }
  static TensorMove unpack(int64_t v) {
    return {(TensorTile)(v & 255), (v & 256) != 0, (uint16_t)(v >> 16), (v & 512) != 0};
  }
  // Of one repetition, in a thread.
  unsigned registers() const {
    return tile == TensorTile::k16x256b ? 4 : tile == TensorTile::k16x128b ? 2 : 1;
  }
  unsigned columns() const {
    return tile == TensorTile::k16x256b   ? 8
           : tile == TensorTile::k16x128b ? 4
           : tile == TensorTile::k16x64b  ? 2
           : halves                       ? 2
                                          : 1;
  }
};
// tcgen05.ld and .st. a: address; imm: a TensorMove; sub: registers, in list.
const Ins* op_tensor_move(Ctx&, const Ins*);

// What the instruction descriptor of a product is read as.
enum class TensorKind : uint8_t { kF16, kTF32, kF8F6F4, kI8 };
inline constexpr const char* kTensorKinds[] = {"kind::f16", "kind::tf32", "kind::f8f6f4",
                                               "kind::i8", nullptr};
// list: address of d, descriptor of a or its address, descriptor of b, instruction descriptor,
// predicate whether d is added; imm: TensorKind, 256: a lies in tensor memory, from bit 16 on the
// power of two that divides d before.
enum TensorProductList : uint8_t {
  kTensorD,
  kTensorA,
  kTensorB,
  kTensorInstruction,
  kTensorAdded,
  kTensorProductCount,
};
const Ins* op_tensor_product(Ctx&, const Ins*);
// An arrival at the mbarrier at a (sub 1: of 32 bits), in the blocks of b, as bits (or kNone).
const Ins* op_tensor_commit(Ctx&, const Ins*);

}  // namespace simgpu::ptx
