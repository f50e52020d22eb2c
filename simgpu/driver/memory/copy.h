// Copies: every one of them is a Box of rows between two ends.
#pragma once

#include "driver/context/context.h"
#include "driver/texture/array.h"

namespace simgpu {

// An end is an address, or an offset in an array's texels when there is one.
struct Box {
  uint64_t to = 0, from = 0;
  uint64_t width = 0, height = 1, depth = 1;  // width in bytes
  uint64_t to_pitch = 0, from_pitch = 0;      // between rows
  uint64_t to_slice = 0, from_slice = 0;      // between layers
  Ref<Array> to_array, from_array;

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  uint64_t to_span() const { return (depth - 1) * to_slice + (height - 1) * to_pitch + width; }
  uint64_t from_span() const {
    return (depth - 1) * from_slice + (height - 1) * from_pitch + width;
  }
};

// Resolves addresses when it is called: an address that is not mapped any more is
// CUDA_ERROR_ILLEGAL_ADDRESS.
CUresult copy_box(Context&, const Box&);

}  // namespace simgpu
