// Machine code for sequences of straight code. On processors with AVX-512 or AVX2 the work of
// consecutive handlers of the interpreter becomes one piece of code that keeps values in vector
// registers, and represents values that are equal in all lanes, or grow from lane to lane by a
// constant, by one number.
//
// A sequence ("run") is part of one basic block and replaces the handler of its first instruction.
// Its code covers the usual case. In every other case (an address outside the segment that was
// found last, indices that wrap, lanes that diverge) it writes the registers to the frame and
// continues in the interpreter's handler of that instruction. So the interpreter defines the result
// of all unusual cases, and the bits are the same.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// The last of Ctx::sites is the block's shared memory, for accesses by 64 bits.
inline constexpr uint32_t kSharedSite = kSites - 1;

// How thread numbers are distributed in a warp: all 32 lanes in one row; rows of 16 (or a
// multiple); otherwise.
enum class WarpShape : uint8_t { kLine, kHalves, kOther };
// Which lanes run: all 32; a subset that contains the first lane of the warp and, if any of its
// second half run, the first of that half; another subset.
enum class LaneSet : uint8_t { kAll, kAnchored, kSome };
inline constexpr uint32_t kVariants = 9;  // shape * 3 + lanes

inline LaneSet lane_set(uint32_t mask) {
  if (mask == ~0u) return LaneSet::kAll;
  const bool anchored = (mask & 1) && ((mask >> 16) == 0 || (mask >> 16 & 1));
  return anchored ? LaneSet::kAnchored : LaneSet::kSome;
}

WarpShape warp_shape(const Launch&);
// Translates the functions that a kernel can reach, for launches of this shape. Any thread.
void translate(const Module&, const Kernel&, WarpShape);
void drop_native(Function*);

}  // namespace simgpu::ptx
