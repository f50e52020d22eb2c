// Asynchronous barriers (mbarrier) and bulk copies (cp.async.bulk), with tensor maps and without;
// lower_*.cc fill these in. Copies are executed at once, so that a wait for them finds them done.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

enum class MbarrierOp : uint8_t {
  kInit,
  kInval,
  kArrive,
  kArriveDrop,
  kExpect,
  kComplete,
  kTestState,
  kTestParity,
  kPending,
};
// imm: the operation; a: address (sub 1: of 32 bits); b: count, token or parity, or kNone; c: bytes
// to expect before arriving, or kNone; d: token or predicate, or kNone; sub 2: the address is in
// the shared space (else generic).
const Ins* op_mbarrier(Ctx&, const Ins*);

// What a reducing copy does with each element instead of writing it (reduce.cc).
enum class ReduceOp : uint8_t { kNone, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };
inline constexpr const char* kReduceNames[] = {"add", "min", "max", "inc",  "dec",
                                               "and", "or",  "xor", nullptr};
struct Reduction {
  ReduceOp op = ReduceOp::kNone;
  Ty type = Ty::kNone;
  int64_t pack() const { return (int64_t)op | (int64_t)type << 8; }
  static Reduction unpack(int64_t v) { return {(ReduceOp)(v & 255), (Ty)(v >> 8 & 255)}; }
};
bool reduction_exists(ReduceOp op, Ty type);
// Returns false if an address is outside every allocation.
bool reduce_bytes(Ctx& c, uint64_t to, const uint8_t* from, uint32_t bytes, Reduction by);

// imm: a Reduction; a to, b from, c bytes, e mbarrier that is told (or kNone), d: blocks of the
// cluster that get it, as bits (or kNone).
enum BulkFlag : uint16_t {
  kBulkTo32 = 1,
  kBulkFrom32 = 2,
  kBulkBarrier32 = 4,
  kBulkToShared = 8,
  kBulkFromShared = 16,
};
const Ins* op_bulk_copy(Ctx&, const Ins*);
// The generic address of a .shared or generic address operand.
uint64_t async_address(Ctx& c, uint32_t operand, bool narrow, bool shared, unsigned lane);
// Counts `bytes` as arrived at the mbarrier at a generic address. False after a fault.
bool bytes_arrive(Ctx& c, const Ins* i, uint64_t barrier, uint32_t bytes);
// One arrival of work that was given out before.
bool one_arrives(Ctx& c, const Ins* i, uint64_t barrier);
// A generic shared address, in block `rank` of the cluster.
inline uint64_t in_block(uint64_t shared, unsigned rank) {
  return (shared & ~0xff000000ull) | (uint64_t)(rank + 1) << 24;
}

// clusterlaunchcontrol.try_cancel: an answer of 16 bytes that says no, to a, in each block of the
// cluster if imm is not 0; e mbarrier; sub: BulkFlag, kBulkTo32 for a.
const Ins* op_try_cancel(Ctx&, const Ins*);

// st.async and red.async: a address in shared memory, e mbarrier; n values of Reduction::type in
// list; sub: BulkFlag, kBulkTo32 for a.
const Ins* op_store_async(Ctx&, const Ins*);
// st.bulk: zeros. a: address (sub 1: of 32 bits, 2: shared), b: bytes.
const Ins* op_zero_bulk(Ctx&, const Ins*);

// Copies with a tensor map (tensor_map.h). a: in shared memory, b: of the map, c: blocks of the
// cluster that get it (or kNone), e: mbarrier that is told (or kNone); sub: BulkFlag, kBulkTo32 for
// a. list: coordinates, then im2col offsets. Of tile::gather4 and tile::scatter4, the coordinates
// are a column and four rows.
struct TensorShape {
  uint8_t dimensions;
  bool store;
  bool im2col;
  bool four_rows;   // tile::gather4, tile::scatter4
  ReduceOp reduce;  // of a store
  unsigned coordinates() const { return four_rows ? 5 : dimensions; }
  int64_t pack() const {
    return dimensions | (store ? 256 : 0) | (im2col ? 512 : 0) | (four_rows ? 1024 : 0) |
           (int64_t)reduce << 16;
  }
  static TensorShape unpack(int64_t v) {
    return {(uint8_t)(v & 255), (v & 256) != 0, (v & 512) != 0, (v & 1024) != 0,
            (ReduceOp)(v >> 16 & 255)};
  }
};
enum TensorList : uint8_t { kTensorCoordinate = 0, kTensorOffset = 5, kTensorCount = 8 };
const Ins* op_tensor_copy(Ctx&, const Ins*);

// tensormap.replace (tensor_replace.cc). a: address of the map, b: the new value; sub: BulkFlag,
// kBulkTo32 and kBulkToShared for a; imm: a MapChange.
enum class MapField : uint8_t {
  kAddress,
  kRank,
  kBox,
  kSize,
  kStride,
  kStep,
  kType,
  kInterleave,
  kSwizzle,
  kAtoms,
  kFill,
};
inline constexpr const char* kMapFieldNames[] = {
    "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
    "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity",
    "fill_mode",      nullptr};
struct MapChange {
  MapField field;
  uint8_t index;  // of the dimension
  bool pieces;    // a stride in units of 16 bytes
  int64_t pack() const { return (int64_t)field | (int64_t)index << 8 | (int64_t)pieces << 16; }
  static MapChange unpack(int64_t v) {
    return {(MapField)(v & 255), (uint8_t)(v >> 8 & 255), (v >> 16 & 1) != 0};
  }
};
const Ins* op_map_replace(Ctx&, const Ins*);
// tensormap.cp_fenceproxy: the map at b to a; sub: BulkFlag. For all of a warp at once.
const Ins* op_map_copy(Ctx&, const Ins*);

}  // namespace simgpu::ptx
