// Asynchronous barriers (mbarrier) and bulk copies (cp.async.bulk without tensor maps); lower.cc
// fills these in. Copies are done at once, so that what waits for them finds them done.
#pragma once

#include "ir.h"

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

// a to, b from, c bytes, e mbarrier that is told (or kNone).
enum BulkFlag : uint16_t {
  kBulkTo32 = 1,
  kBulkFrom32 = 2,
  kBulkBarrier32 = 4,
  kBulkToShared = 8,
  kBulkFromShared = 16,
};
const Ins* op_bulk_copy(Ctx&, const Ins*);

}  // namespace simgpu::ptx
