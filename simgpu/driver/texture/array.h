// Arrays: texels that have no address. Rows are stored one after the other in device memory; a
// layer, a face or a depth slice follows the other.
#pragma once

#include <vector>

#include "driver/base/object.h"
#include "driver/context/context.h"
#include "driver/memory/address_space.h"

namespace simgpu {

class Mipmap;

class Array : public Object {
 public:
  static constexpr Kind kKind = Kind::kArray;
  Array(Ref<Context> c, const CUDA_ARRAY3D_DESCRIPTOR& d)
      : Object(kKind), context(std::move(c)), descriptor(d) {}
  // Memory for it: CUDA_ERROR_OUT_OF_MEMORY when there is none.
  CUresult allocate();

  uint64_t texel_bytes() const { return texel; }
  uint64_t row_bytes() const { return width * texel; }
  uint64_t slice_bytes() const { return row_bytes() * rows; }
  uint64_t bytes() const { return slice_bytes() * slices; }
  uint8_t* host() const { return backing->host + offset; }

  const Ref<Context> context;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor;  // as asked for; of a level: with its sizes
  uint64_t texel = 0, width = 0, rows = 0, slices = 0;
  Ref<Backing> backing;
  uint64_t offset = 0;  // of a mipmap's level in the mipmap's memory
  bool level = false;   // belongs to a mipmap, which ends it
};

class Mipmap : public Object {
 public:
  static constexpr Kind kKind = Kind::kMipmap;
  Mipmap(Ref<Context> c, const CUDA_ARRAY3D_DESCRIPTOR& d)
      : Object(kKind), context(std::move(c)), descriptor(d) {}
  const Ref<Context> context;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor;
  std::vector<Ref<Array>> levels;
};

// Bytes of one channel; 0: no such format, or one that is not simulated.
unsigned channel_bytes(CUarray_format);

}  // namespace simgpu
