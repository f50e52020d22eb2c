// Fragments of mma and wgmma, of which a register of 32 lanes has a matrix of eight rows: each four
// lanes a row, one element behind the other.
#pragma once

#include "ptx/handlers/matrix.h"

namespace simgpu::ptx {

inline constexpr unsigned kTileRows = 16, kTileColumns = 8;
inline constexpr unsigned kTileInner = 64;  // the most that an instruction has
using TileA = double[kTileRows][kTileInner];
using TileB = double[kTileInner][kTileColumns];
using TileD = double[kTileRows][kTileColumns];

// Rows of a in `count` registers: rows 0 to 7, 8 to 15, then the same for the next columns.
void read_rows(Ctx&, const uint32_t* registers, unsigned count, Element, TileA);
// Columns of b, from the first of the inner dimension on.
void read_columns(Ctx&, const uint32_t* registers, unsigned count, Element, TileB);
// 16 x 8 sums, in four registers or, of 16 bits, two; float, half or s32.
void read_sums(Ctx&, const uint32_t* registers, Element, TileD);
void write_sums(Ctx&, const uint32_t* registers, Element, bool saturate, const TileD);

}  // namespace simgpu::ptx
