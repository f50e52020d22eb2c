#include "driver/texture/array.h"

#include "driver/base/state.h"
#include "driver/memory/memory.h"
#include "driver/stream/stream.h"
#include "driver/texture/texture.h"

namespace simgpu {

unsigned channel_bytes(CUarray_format f) {
  switch (static_cast<int>(f)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

namespace {

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT;

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if ((d.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                  CUDA_ARRAY3D_VIDEO_ENCODE_DECODE | CUDA_ARRAY3D_DEPTH_TEXTURE)) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if ((d.Flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (channel_bytes(d.Format) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (d.NumChannels != 1 && d.NumChannels != 2 && d.NumChannels != 4)
    return CUDA_ERROR_INVALID_VALUE;
  bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  bool cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  if (d.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if (layered && d.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!layered && d.Depth != 0 && d.Height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (cube &&
      (d.Width != d.Height || d.Depth % 6 != 0 || d.Depth == 0 || (!layered && d.Depth != 6)))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t most_wide = d.Height == 0 ? 131072 : d.Depth != 0 && !layered ? 16384 : 131072;
  uint64_t most_high = d.Depth != 0 && !layered ? 16384 : 65536;
  uint64_t most_deep = layered ? 2048 * (cube ? 6 : 1) : 16384;
  if (d.Width > most_wide || d.Height > most_high || d.Depth > most_deep)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

void measure(Array* a) {
  const CUDA_ARRAY3D_DESCRIPTOR& d = a->descriptor;
  a->texel = static_cast<uint64_t>(channel_bytes(d.Format)) * d.NumChannels;
  a->width = d.Width;
  a->rows = d.Height != 0 ? d.Height : 1;
  a->slices = d.Depth != 0 ? d.Depth : 1;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (CUresult r = check(d); r != CUDA_SUCCESS) return r;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  auto a = Ref<Array>::adopt(new Array(c, d));
  if (CUresult r = a->allocate(); r != CUDA_SUCCESS) return r;
  state()->handles.add(a.get());
  a->retain();  // the handle's
  *out = reinterpret_cast<CUarray>(a.get());
  return CUDA_SUCCESS;
}

template <class T>
CUresult find(const void* handle, Ref<T>* out) {
  *out = state()->handles.get<T>(handle);
  if (!*out) return CUDA_ERROR_INVALID_HANDLE;
  return (*out)->context->active() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

uint64_t level_size(uint64_t full, unsigned level) {
  if (full == 0) return 0;
  uint64_t n = full >> level;
  return n != 0 ? n : 1;
}

}  // namespace

CUresult Array::allocate() {
  measure(this);
  backing = Backing::create(context->device, round_up(bytes(), kPage), false);
  return backing ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  ENTER(cuArrayCreate_v2);
  if (!out || !d) return CUDA_ERROR_INVALID_VALUE;
  return create(out, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
}

SIMGPU_API cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  ENTER(cuArray3DCreate_v2);
  if (!out || !d) return CUDA_ERROR_INVALID_VALUE;
  return create(out, *d);
}

SIMGPU_API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  ENTER(cuArrayGetDescriptor_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Array> a;
  if (CUresult r = find(handle, &a); r != CUDA_SUCCESS) return r;
  *out = {a->descriptor.Width, a->descriptor.Height, a->descriptor.Format,
          a->descriptor.NumChannels};
  return CUDA_SUCCESS;
}

SIMGPU_API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  ENTER(cuArray3DGetDescriptor_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Array> a;
  if (CUresult r = find(handle, &a); r != CUDA_SUCCESS) return r;
  *out = a->descriptor;
  return CUDA_SUCCESS;
}

// Waits for the work that may use it, as freeing memory does.
SIMGPU_API cuArrayDestroy(CUarray handle) {
  ENTER(cuArrayDestroy);
  Ref<Array> a;
  if (CUresult r = find(handle, &a); r != CUDA_SUCCESS) return r;
  if (a->level) return CUDA_ERROR_INVALID_HANDLE;  // its mipmap's
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  if (CUresult r = a->context->synchronize(); r != CUDA_SUCCESS) return r;
  forget_destroyed_samplers();
  if (!state()->handles.remove(a.get())) return CUDA_ERROR_INVALID_HANDLE;
  a->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuArrayGetPlane(CUarray*, CUarray handle, unsigned) {
  ENTER(cuArrayGetPlane);
  Ref<Array> a;
  if (CUresult r = find(handle, &a); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_INVALID_VALUE;  // no planar formats
}

SIMGPU_API cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray handle) {
  ENTER(cuArrayGetSparseProperties);
  Ref<Array> a;
  if (CUresult r = find(handle, &a); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_INVALID_VALUE;  // not sparse
}

SIMGPU_API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray handle, CUdevice) {
  ENTER(cuArrayGetMemoryRequirements);
  Ref<Array> a;
  if (CUresult r = find(handle, &a); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_INVALID_VALUE;  // of arrays whose memory is mapped later
}

SIMGPU_API cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* d,
                                  unsigned levels) {
  ENTER(cuMipmappedArrayCreate);
  if (!out || !d || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check(*d); r != CUDA_SUCCESS) return r;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  bool layered = (d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  uint64_t longest = d->Width > d->Height ? d->Width : d->Height;
  if (!layered && d->Depth > longest) longest = d->Depth;
  unsigned most = 1;
  while (longest >> most != 0) ++most;
  if (levels > most) levels = most;  // as the documentation says: clamped
  auto m = Ref<Mipmap>::adopt(new Mipmap(c, *d));
  uint64_t at = 0;
  for (unsigned i = 0; i < levels; ++i) {
    CUDA_ARRAY3D_DESCRIPTOR level = *d;
    level.Width = level_size(d->Width, i);
    level.Height = level_size(d->Height, i);
    if (!layered) level.Depth = level_size(d->Depth, i);
    auto a = Ref<Array>::adopt(new Array(c, level));
    measure(a.get());
    a->level = true;
    a->offset = at;
    at += round_up(a->bytes(), 512);
    m->levels.push_back(a);
  }
  Ref<Backing> memory = Backing::create(c->device, round_up(at, kPage), false);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  for (Ref<Array>& a : m->levels) {
    a->backing = memory;
    state()->handles.add(a.get());
  }
  state()->handles.add(m.get());
  m->retain();  // the handle's
  *out = reinterpret_cast<CUmipmappedArray>(m.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
  ENTER(cuMipmappedArrayGetLevel);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Mipmap> m;
  if (CUresult r = find(handle, &m); r != CUDA_SUCCESS) return r;
  if (level >= m->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUarray>(m->levels[level].get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  ENTER(cuMipmappedArrayDestroy);
  Ref<Mipmap> m;
  if (CUresult r = find(handle, &m); r != CUDA_SUCCESS) return r;
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  if (CUresult r = m->context->synchronize(); r != CUDA_SUCCESS) return r;
  forget_destroyed_samplers();
  if (!state()->handles.remove(m.get())) return CUDA_ERROR_INVALID_HANDLE;
  for (Ref<Array>& a : m->levels) state()->handles.remove(a.get());
  m->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                               CUmipmappedArray handle) {
  ENTER(cuMipmappedArrayGetSparseProperties);
  Ref<Mipmap> m;
  if (CUresult r = find(handle, &m); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                                 CUmipmappedArray handle, CUdevice) {
  ENTER(cuMipmappedArrayGetMemoryRequirements);
  Ref<Mipmap> m;
  if (CUresult r = find(handle, &m); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_INVALID_VALUE;
}
