// Machine code for stretches of straight code: on processors with AVX-512, what the interpreter
// would do one instruction after the other becomes one piece of code that keeps values in vector
// registers, and numbers that are the same for all lanes, or count up from lane to lane, as one
// number.
//
// A stretch ("run") is part of one basic block and takes the place of the handler of its first
// instruction. Its code does what is usual; whatever else comes up (an address outside the segment
// that was found last, indices that wrap, lanes that diverge) is left to the interpreter's handlers
// from that instruction on: the registers are written to the frame, and the handler runs. So the
// interpreter decides in every case that is not plain, and gives the same bits.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// The last of Ctx::sites is the block's shared memory, for accesses by 64 bits.
inline constexpr uint32_t kSharedSite = kSites - 1;

// How thread numbers lie in a warp: all 32 lanes in one row; rows of 16 (or a multiple); otherwise.
enum class WarpShape : uint8_t { kLine, kHalves, kOther };
// Which lanes run: all 32; some, of which the first one of the warp and, if any there, of its
// second half is one; other ones.
enum class LaneSet : uint8_t { kAll, kAnchored, kSome };
inline constexpr uint32_t kVariants = 9;  // shape * 3 + lanes

inline LaneSet lane_set(uint32_t mask) {
  if (mask == ~0u) return LaneSet::kAll;
  const bool anchored = (mask & 1) && ((mask >> 16) == 0 || (mask >> 16 & 1));
  return anchored ? LaneSet::kAnchored : LaneSet::kSome;
}

WarpShape warp_shape(const Launch&);
// Makes the code for functions that a kernel can reach, for launches of this shape. Any thread.
void translate(const Module&, const Kernel&, WarpShape);
void drop_native(Function*);

}  // namespace simgpu::ptx
