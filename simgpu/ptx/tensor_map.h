// The contents of a CUtensorMap of the simulated driver: 128 bytes that the driver writes
// (cuTensorMapEncode*) and tensor copies read. They are plain bytes with a device address in them,
// wherever a program stores them. The encoding is this simulator's own.
#pragma once

#include <cstdint>

namespace simgpu::ptx {

struct TensorMap {
  static constexpr uint32_t kMagic = 0x50414d54;  // "TMAP"
  static constexpr unsigned kMostDimensions = 5;
  enum Mode : uint8_t { kTiled, kIm2col, kIm2colWide };
  // How 16-byte pieces of a span are exchanged in shared memory: as CUtensorMapSwizzle.
  enum Swizzle : uint8_t { kPlain, k32, k64, k128, k128Atom32 };

  uint32_t magic;
  uint8_t type;           // CUtensorMapDataType
  uint8_t element_bytes;  // 1, 2, 4, 8
  uint8_t dimensions;
  Mode mode;
  uint64_t address;
  uint64_t strides[4];  // bytes, of the dimensions from 1 on
  uint32_t last[5];     // the highest coordinate
  uint16_t box[5];      // elements, before steps; im2col: [0] channels, [1] pixels
  uint8_t step[5];
  Swizzle swizzle;
  uint8_t nan_fill;            // what lies outside reads as NaN instead of 0
  uint8_t flush;               // denormals read as 0
  int16_t lower[3], upper[3];  // im2col: of the bounding box, from W on
  uint8_t atoms_of_32;  // pieces of 32 bytes, where the swizzle leaves a choice (tensor_replace.cc)
  uint8_t unused[29];
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace simgpu::ptx
