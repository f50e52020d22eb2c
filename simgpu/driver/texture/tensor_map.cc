// Tensor maps: a description of a tensor in device memory, written into 128 bytes that are the
// program's (ptx/tensor_map.h says how).
#include "ptx/tensor_map.h"

#include <string.h>

#include "driver/base/state.h"
#include "driver/context/device.h"

namespace simgpu {
namespace {

// What the encoders have in common.
struct Shape {
  CUtensorMapDataType type;
  uint32_t rank;
  void* address;
  const uint64_t* extents;
  const uint64_t* strides;
  const uint32_t* steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

unsigned element_bytes(CUtensorMapDataType t) {
  static const uint8_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return t >= 0 && t < sizeof kBytes ? kBytes[t] : 0;
}
bool is_real(CUtensorMapDataType t) { return t >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }

CUresult supported(const Shape& s) {
  if (state()->options.sm < 90) return CUDA_ERROR_NOT_SUPPORTED;
  if (s.type < 0 || s.type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || s.interleave < 0 ||
      s.interleave > CU_TENSOR_MAP_INTERLEAVE_32B || s.swizzle < 0 ||
      s.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B || s.promotion < 0 ||
      s.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B || s.fill < 0 ||
      s.fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    return CUDA_ERROR_INVALID_VALUE;
  // Packed elements, interleaved layouts and the rarer ways to swizzle.
  if (element_bytes(s.type) == 0 || s.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      s.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B)
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult encode_shape(const Shape& s, ptx::TensorMap* m) {
  if (s.rank == 0 || s.rank > ptx::TensorMap::kMostDimensions || !s.address || !s.extents ||
      !s.steps || (s.rank > 1 && !s.strides))
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = supported(s); r != CUDA_SUCCESS) return r;
  if (s.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_real(s.type))
    return CUDA_ERROR_INVALID_VALUE;
  *m = {};
  m->magic = ptx::TensorMap::kMagic;
  m->type = static_cast<uint8_t>(s.type);
  m->element_bytes = static_cast<uint8_t>(element_bytes(s.type));
  m->dimensions = static_cast<uint8_t>(s.rank);
  m->address = reinterpret_cast<uint64_t>(s.address);
  m->swizzle = static_cast<ptx::TensorMap::Swizzle>(s.swizzle);
  m->nan_fill = s.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  m->flush = s.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ ||
             s.type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
  if (m->address % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t d = 0; d < s.rank; ++d) {
    if (s.extents[d] == 0 || s.extents[d] > 1ull << 32) return CUDA_ERROR_INVALID_VALUE;
    m->last[d] = static_cast<uint32_t>(s.extents[d] - 1);
    m->step[d] = static_cast<uint8_t>(s.steps[d]);
    if (s.steps[d] == 0 || s.steps[d] > 8) return CUDA_ERROR_INVALID_VALUE;
    if (d == 0) continue;
    m->strides[d - 1] = s.strides[d - 1];
    if (s.strides[d - 1] % 16 != 0 || s.strides[d - 1] >= 1ull << 40)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The innermost row of the box.
CUresult check_row(const ptx::TensorMap& m, uint32_t elements) {
  static const uint32_t kSpans[] = {~0u, 32, 64, 128, 128};
  const uint32_t bytes = elements * m.element_bytes;
  return elements == 0 || elements > 256 || bytes % 16 != 0 || bytes > kSpans[m.swizzle]
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult write(const ptx::TensorMap& m, CUtensorMap* out) {
  memcpy(out, &m, sizeof m);
  return CUDA_SUCCESS;
}
bool aligned(const CUtensorMap* map) { return map && reinterpret_cast<uint64_t>(map) % 64 == 0; }
static_assert(sizeof(CUtensorMap) == sizeof(ptx::TensorMap));

CUresult encode_columns(const Shape& s, const int* lower, const int* upper, unsigned corners,
                        uint32_t channels, uint32_t pixels, ptx::TensorMap::Mode mode,
                        CUtensorMap* out) {
  static const int kReach[] = {0, 32768, 128, 16};  // by the number of corners
  ptx::TensorMap m;
  if (!aligned(out) || s.rank < 3) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = encode_shape(s, &m); r != CUDA_SUCCESS) return r;
  if (CUresult r = check_row(m, channels); r != CUDA_SUCCESS) return r;
  if (pixels == 0 || pixels > 1024) return CUDA_ERROR_INVALID_VALUE;
  m.mode = mode;
  m.box[0] = static_cast<uint16_t>(channels);
  m.box[1] = static_cast<uint16_t>(pixels);
  for (unsigned k = 0; k < corners; ++k) {  // W last in the arrays, and first here
    const int l = lower[corners - 1 - k], u = upper[corners - 1 - k], reach = kReach[corners];
    if (l < -reach || l >= reach || u < -reach || u >= reach) return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<int64_t>(m.last[k + 1]) + u < l) return CUDA_ERROR_INVALID_VALUE;
    m.lower[k] = static_cast<int16_t>(l);
    m.upper[k] = static_cast<int16_t>(u);
  }
  return write(m, out);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                  void* address, const cuuint64_t* extents,
                                  const cuuint64_t* strides, const cuuint32_t* box,
                                  const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                  CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                  CUtensorMapFloatOOBfill fill) {
  ENTER(cuTensorMapEncodeTiled);
  if (!aligned(out) || !box) return CUDA_ERROR_INVALID_VALUE;
  ptx::TensorMap m;
  const Shape shape{type,  rank,       address, extents,   strides,
                    steps, interleave, swizzle, promotion, fill};
  if (CUresult r = encode_shape(shape, &m); r != CUDA_SUCCESS) return r;
  if (CUresult r = check_row(m, box[0]); r != CUDA_SUCCESS) return r;
  for (uint32_t d = 0; d < rank; ++d) {
    if (box[d] == 0 || box[d] > 256) return CUDA_ERROR_INVALID_VALUE;
    m.box[d] = static_cast<uint16_t>(box[d]);
  }
  return write(m, out);
}

SIMGPU_API cuTensorMapEncodeIm2col(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                   void* address, const cuuint64_t* extents,
                                   const cuuint64_t* strides, const int* lower, const int* upper,
                                   cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                   CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  ENTER(cuTensorMapEncodeIm2col);
  if (!lower || !upper || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  return encode_columns(
      {type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill}, lower,
      upper, rank < 3 ? 0 : rank - 2, channels, pixels, ptx::TensorMap::kIm2col, out);
}

SIMGPU_API cuTensorMapEncodeIm2colWide(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                       void* address, const cuuint64_t* extents,
                                       const cuuint64_t* strides, int lower, int upper,
                                       cuuint32_t channels, cuuint32_t pixels,
                                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                       CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill) {
  ENTER(cuTensorMapEncodeIm2colWide);
  if (mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W && mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128)
    return CUDA_ERROR_INVALID_VALUE;
  if (state()->options.sm < 100) return CUDA_ERROR_NOT_SUPPORTED;
  return encode_columns(
      {type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill}, &lower,
      &upper, 1, channels, pixels, ptx::TensorMap::kIm2colWide, out);
}

SIMGPU_API cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  ENTER(cuTensorMapReplaceAddress);
  if (!aligned(map) || !address || reinterpret_cast<uint64_t>(address) % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  ptx::TensorMap m;
  memcpy(&m, map, sizeof m);
  if (m.magic != ptx::TensorMap::kMagic) return CUDA_ERROR_INVALID_VALUE;
  m.address = reinterpret_cast<uint64_t>(address);
  return write(m, map);
}
