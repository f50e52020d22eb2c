// Texture and surface references: the state that cuTexRef* and cuSurfRef* set and query, and what a
// launch makes of it. Each setter only stores its value; a combination that cannot be sampled fails
// the kernel that samples.
#include <string.h>

#include "driver/base/state.h"
#include "driver/memory/memory.h"
#include "driver/module/module.h"
#include "driver/texture/texture.h"

namespace simgpu {
namespace {

// cuDeviceGetAttribute's TEXTURE_ALIGNMENT and TEXTURE_PITCH_ALIGNMENT.
constexpr uint64_t kAlignment = 512, kPitchAlignment = 32;

template <class T, class H>
CUresult find(H handle, Ref<T>* out) {
  *out = state()->handles.get<T>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Runs f(reference) under its lock.
template <class F>
CUresult with(CUtexref handle, F f) {
  Ref<TextureReference> t;
  if (CUresult r = find(handle, &t); r != CUDA_SUCCESS) return r;
  Lock lock(t->mutex);
  return f(*t);
}

uint64_t texel_bytes(const TextureReference& t) { return channel_bytes(t.format) * t.channels; }

CUresult set_format(TextureReference* t, CUarray_format format, unsigned channels) {
  if (channel_bytes(format) == 0 || (channels != 1 && channels != 2 && channels != 4))
    return CUDA_ERROR_INVALID_VALUE;
  t->format = format;
  t->channels = channels;
  return CUDA_SUCCESS;
}

CUresult set_address(TextureReference* t, size_t* offset, CUdeviceptr address, size_t bytes) {
  if (address == 0 && bytes == 0) {  // bound to nothing
    t->bound = false;
    if (offset) *offset = 0;
    return CUDA_SUCCESS;
  }
  const uint64_t base = round_down(address, kAlignment);
  if (!offset && base != address) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0 || bytes / texel_bytes(*t) > 1u << 27 ||
      place_of(address, bytes) == AddressSpace::Place::kBad)
    return CUDA_ERROR_INVALID_VALUE;
  t->resource = {};
  t->resource.resType = CU_RESOURCE_TYPE_LINEAR;
  t->resource.res.linear.devPtr = base;
  t->resource.res.linear.sizeInBytes = bytes + (address - base);
  t->bound = true;
  if (offset) *offset = address - base;
  return CUDA_SUCCESS;
}

CUresult set_address_2d(TextureReference* t, const CUDA_ARRAY_DESCRIPTOR* d, CUdeviceptr address,
                        size_t pitch, uint64_t alignment) {
  if (!d || address == 0 || address % alignment != 0 || pitch % kPitchAlignment != 0 ||
      d->Width == 0 || d->Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t texel = channel_bytes(d->Format) * d->NumChannels;
  if (texel == 0 || pitch < d->Width * texel ||
      place_of(address, (d->Height - 1) * pitch + d->Width * texel) == AddressSpace::Place::kBad)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = set_format(t, d->Format, d->NumChannels); r != CUDA_SUCCESS) return r;
  t->resource = {};
  t->resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  auto& p = t->resource.res.pitch2D;
  p.devPtr = address;
  p.width = d->Width;
  p.height = d->Height;
  p.pitchInBytes = pitch;
  t->bound = true;
  return CUDA_SUCCESS;
}

CUresult sampler_of(TextureReference* t, Ref<Sampler>* out) {
  Lock lock(t->mutex);
  if (!t->bound) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RESOURCE_DESC resource = t->resource;
  if (resource.resType == CU_RESOURCE_TYPE_LINEAR) {
    resource.res.linear.format = t->format;
    resource.res.linear.numChannels = t->channels;
  } else if (resource.resType == CU_RESOURCE_TYPE_PITCH2D) {
    resource.res.pitch2D.format = t->format;
    resource.res.pitch2D.numChannels = t->channels;
  }
  return make_sampler(resource, &t->texture, nullptr, out);
}

CUresult sampler_of(SurfaceReference* s, Ref<Sampler>* out) {
  Lock lock(s->mutex);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = s->array;
  return make_sampler(resource, nullptr, nullptr, out);
}

}  // namespace

const ptx::Texture* BoundReferences::find(uint64_t handle, bool surface) {
  for (const Entry& e : entries)
    if (e.address == handle)
      return e.sampler && e.sampler->surface == surface ? &e.sampler->sampled : nullptr;
  ptx::Textures* objects = all_textures();
  return surface ? objects->surface(handle) : objects->texture(handle);
}

Ref<BoundReferences> bind_references(const Module& m) {
  if (m.textures.empty() && m.surfaces.empty()) return {};
  auto bound = Ref<BoundReferences>::adopt(new BoundReferences);
  for (const Ref<TextureReference>& t : m.textures) {
    BoundReferences::Entry e = {t->address, {}};
    sampler_of(t.get(), &e.sampler);
    bound->entries.push_back(e);
  }
  for (const Ref<SurfaceReference>& s : m.surfaces) {
    BoundReferences::Entry e = {s->address, {}};
    sampler_of(s.get(), &e.sampler);
    bound->entries.push_back(e);
  }
  return bound;
}

}  // namespace simgpu

using namespace simgpu;

// A reference that no kernel knows: for programs that keep state in one.
SIMGPU_API cuTexRefCreate(CUtexref* out) {
  ENTER(cuTexRefCreate);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  auto t = Ref<TextureReference>::adopt(new TextureReference);
  for (CUaddress_mode& mode : t->texture.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  t->retain();  // the handle's
  state()->handles.add(t.get());
  *out = reinterpret_cast<CUtexref>(t.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuTexRefDestroy(CUtexref handle) {
  ENTER(cuTexRefDestroy);
  Ref<TextureReference> t;
  if (CUresult r = find(handle, &t); r != CUDA_SUCCESS) return r;
  if (t->address != 0) return CUDA_ERROR_INVALID_HANDLE;  // its module's
  if (!state()->handles.remove(t.get())) return CUDA_ERROR_INVALID_HANDLE;
  t->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuTexRefSetArray(CUtexref handle, CUarray array, unsigned flags) {
  ENTER(cuTexRefSetArray);
  if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
  Ref<Array> a;
  if (CUresult r = find(array, &a); r != CUDA_SUCCESS) return r;
  return with(handle, [&](TextureReference& t) {
    t.resource = {};
    t.resource.resType = CU_RESOURCE_TYPE_ARRAY;
    t.resource.res.array.hArray = array;
    t.bound = true;
    return set_format(&t, a->descriptor.Format, a->descriptor.NumChannels);
  });
}

SIMGPU_API cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray mipmap, unsigned flags) {
  ENTER(cuTexRefSetMipmappedArray);
  if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
  Ref<Mipmap> m;
  if (CUresult r = find(mipmap, &m); r != CUDA_SUCCESS) return r;
  return with(handle, [&](TextureReference& t) {
    t.resource = {};
    t.resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    t.resource.res.mipmap.hMipmappedArray = mipmap;
    t.bound = true;
    return set_format(&t, m->descriptor.Format, m->descriptor.NumChannels);
  });
}

SIMGPU_API cuTexRefSetAddress_v2(size_t* offset, CUtexref handle, CUdeviceptr address,
                                 size_t bytes) {
  ENTER(cuTexRefSetAddress_v2);
  return with(handle, [&](TextureReference& t) { return set_address(&t, offset, address, bytes); });
}

// Its first version checked the address less strictly.
SIMGPU_API cuTexRefSetAddress2D_v2(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* d,
                                   CUdeviceptr address, size_t pitch) {
  ENTER(cuTexRefSetAddress2D_v2);
  return with(handle, [&](TextureReference& t) {
    return set_address_2d(&t, d, address, pitch, kPitchAlignment);
  });
}
SIMGPU_API cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* d,
                                   CUdeviceptr address, size_t pitch) {
  ENTER(cuTexRefSetAddress2D_v3);
  return with(handle, [&](TextureReference& t) {
    return set_address_2d(&t, d, address, pitch, kAlignment);
  });
}

SIMGPU_API cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels) {
  ENTER(cuTexRefSetFormat);
  return with(handle, [&](TextureReference& t) {
    return set_format(&t, format, static_cast<unsigned>(channels));
  });
}

SIMGPU_API cuTexRefSetAddressMode(CUtexref handle, int dimension, CUaddress_mode mode) {
  ENTER(cuTexRefSetAddressMode);
  if (dimension < 0 || dimension > 2 || mode < 0 || mode > CU_TR_ADDRESS_MODE_BORDER)
    return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    t.texture.addressMode[dimension] = mode;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetFilterMode(CUtexref handle, CUfilter_mode mode) {
  ENTER(cuTexRefSetFilterMode);
  if (mode < 0 || mode > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    t.texture.filterMode = mode;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetMipmapFilterMode(CUtexref handle, CUfilter_mode mode) {
  ENTER(cuTexRefSetMipmapFilterMode);
  if (mode < 0 || mode > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    t.texture.mipmapFilterMode = mode;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetMipmapLevelBias(CUtexref handle, float bias) {
  ENTER(cuTexRefSetMipmapLevelBias);
  return with(handle, [&](TextureReference& t) {
    t.texture.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetMipmapLevelClamp(CUtexref handle, float least, float most) {
  ENTER(cuTexRefSetMipmapLevelClamp);
  return with(handle, [&](TextureReference& t) {
    t.texture.minMipmapLevelClamp = least;
    t.texture.maxMipmapLevelClamp = most;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetMaxAnisotropy(CUtexref handle, unsigned most) {
  ENTER(cuTexRefSetMaxAnisotropy);
  return with(handle, [&](TextureReference& t) {
    t.texture.maxAnisotropy = most;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetBorderColor(CUtexref handle, float* color) {
  ENTER(cuTexRefSetBorderColor);
  if (!color) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    memcpy(t.texture.borderColor, color, sizeof t.texture.borderColor);
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefSetFlags(CUtexref handle, unsigned flags) {
  ENTER(cuTexRefSetFlags);
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    t.texture.flags = flags;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetAddress_v2(CUdeviceptr* out, CUtexref handle) {
  ENTER(cuTexRefGetAddress_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    if (!t.bound) return CUDA_ERROR_INVALID_VALUE;
    if (t.resource.resType == CU_RESOURCE_TYPE_LINEAR)
      *out = t.resource.res.linear.devPtr;
    else if (t.resource.resType == CU_RESOURCE_TYPE_PITCH2D)
      *out = t.resource.res.pitch2D.devPtr;
    else
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetArray(CUarray* out, CUtexref handle) {
  ENTER(cuTexRefGetArray);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    if (!t.bound || t.resource.resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    *out = t.resource.res.array.hArray;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetMipmappedArray(CUmipmappedArray* out, CUtexref handle) {
  ENTER(cuTexRefGetMipmappedArray);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    if (!t.bound || t.resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
      return CUDA_ERROR_INVALID_VALUE;
    *out = t.resource.res.mipmap.hMipmappedArray;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetFormat(CUarray_format* format, int* channels, CUtexref handle) {
  ENTER(cuTexRefGetFormat);
  return with(handle, [&](TextureReference& t) {
    if (format) *format = t.format;
    if (channels) *channels = static_cast<int>(t.channels);
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetAddressMode(CUaddress_mode* out, CUtexref handle, int dimension) {
  ENTER(cuTexRefGetAddressMode);
  if (!out || dimension < 0 || dimension > 2) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    *out = t.texture.addressMode[dimension];
    return CUDA_SUCCESS;
  });
}

// A field of the description.
template <class T, class F>
static CUresult give(T* out, CUtexref handle, F field) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    *out = static_cast<T>(field(t.texture));
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetFilterMode(CUfilter_mode* out, CUtexref handle) {
  ENTER(cuTexRefGetFilterMode);
  return give(out, handle, [](CUDA_TEXTURE_DESC& d) { return d.filterMode; });
}
SIMGPU_API cuTexRefGetMipmapFilterMode(CUfilter_mode* out, CUtexref handle) {
  ENTER(cuTexRefGetMipmapFilterMode);
  return give(out, handle, [](CUDA_TEXTURE_DESC& d) { return d.mipmapFilterMode; });
}
SIMGPU_API cuTexRefGetMipmapLevelBias(float* out, CUtexref handle) {
  ENTER(cuTexRefGetMipmapLevelBias);
  return give(out, handle, [](CUDA_TEXTURE_DESC& d) { return d.mipmapLevelBias; });
}
SIMGPU_API cuTexRefGetMaxAnisotropy(int* out, CUtexref handle) {
  ENTER(cuTexRefGetMaxAnisotropy);
  return give(out, handle, [](CUDA_TEXTURE_DESC& d) { return d.maxAnisotropy; });
}
SIMGPU_API cuTexRefGetFlags(unsigned* out, CUtexref handle) {
  ENTER(cuTexRefGetFlags);
  return give(out, handle, [](CUDA_TEXTURE_DESC& d) { return d.flags; });
}

SIMGPU_API cuTexRefGetMipmapLevelClamp(float* least, float* most, CUtexref handle) {
  ENTER(cuTexRefGetMipmapLevelClamp);
  if (!least || !most) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    *least = t.texture.minMipmapLevelClamp;
    *most = t.texture.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuTexRefGetBorderColor(float* out, CUtexref handle) {
  ENTER(cuTexRefGetBorderColor);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return with(handle, [&](TextureReference& t) {
    memcpy(out, t.texture.borderColor, sizeof t.texture.borderColor);
    return CUDA_SUCCESS;
  });
}

// Kernels find the references of their module without being told.
SIMGPU_API cuParamSetTexRef(CUfunction function, int unit, CUtexref handle) {
  ENTER(cuParamSetTexRef);
  if (unit != CU_PARAM_TR_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Ref<Function> f;
  if (CUresult r = function_of(function, *c, &f); r != CUDA_SUCCESS) return r;
  return with(handle, [&](TextureReference& t) {
    return t.address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

SIMGPU_API cuSurfRefSetArray(CUsurfref handle, CUarray array, unsigned flags) {
  ENTER(cuSurfRefSetArray);
  Ref<SurfaceReference> s;
  if (CUresult r = find(handle, &s); r != CUDA_SUCCESS) return r;
  Ref<Array> a;
  if (CUresult r = find(array, &a); r != CUDA_SUCCESS) return r;
  if (flags != 0 || (a->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Lock lock(s->mutex);
  s->array = array;
  return CUDA_SUCCESS;
}

SIMGPU_API cuSurfRefGetArray(CUarray* out, CUsurfref handle) {
  ENTER(cuSurfRefGetArray);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<SurfaceReference> s;
  if (CUresult r = find(handle, &s); r != CUDA_SUCCESS) return r;
  Lock lock(s->mutex);
  if (!s->array) return CUDA_ERROR_INVALID_VALUE;
  *out = s->array;
  return CUDA_SUCCESS;
}
