#include "driver/texture/texture.h"

#include <string.h>

#include "driver/base/state.h"
#include "driver/memory/memory.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

constexpr size_t kSlots = 4096;
std::atomic<Sampler*> slots[2][kSlots];  // textures, surfaces

uint64_t base_of(bool surface) {
  return ((state()->options.seed * 0x9e3779b9u & 0x7ff) + 1) << 20 | (surface ? 1u << 16 : 0);
}

Sampler* look(bool surface, uint64_t handle) {
  uint64_t slot = handle - base_of(surface) - 1;
  return slot < kSlots ? slots[surface][slot].load(std::memory_order_acquire) : nullptr;
}

Mutex& table_mutex() {
  static Mutex m;
  return m;
}

// An object that was destroyed while submitted work may still use it: kernels find it until that
// work is done, calls do not.
struct Leaving {
  bool surface;
  size_t slot;
  std::vector<Point> work;
};
std::vector<Leaving>* leaving = nullptr;  // guarded by table_mutex()

bool is_leaving(bool surface, size_t slot) {
  if (!leaving) return false;
  for (const Leaving& l : *leaving)
    if (l.surface == surface && l.slot == slot) return true;
  return false;
}

// The work that the streams of all contexts have not done yet.
std::vector<Point> submitted_work() {
  std::vector<Ref<Context>> contexts;
  {
    Lock lock(state()->live_mutex);
    for (Context* c : state()->live) contexts.push_back(Ref<Context>(c));
  }
  std::vector<Point> work;
  for (Ref<Context>& c : contexts) {
    Lock order(c->order);
    for (Stream* s : c->streams)
      if (Point p = s->last(); !p.reached()) work.push_back(p);
  }
  return work;
}

void empty(bool surface, size_t slot) {
  Sampler* s = slots[surface][slot].exchange(nullptr);
  retire(Ref<RefCounted>::adopt(s));  // kernels may be looking at it
}

// Empties the slots of objects whose work is done. The caller holds table_mutex().
void sweep() {
  if (!leaving) return;
  for (size_t i = 0; i < leaving->size();) {
    Leaving& l = (*leaving)[i];
    bool done = true;
    for (const Point& p : l.work) done = done && p.reached();
    if (!done) {
      ++i;
      continue;
    }
    empty(l.surface, l.slot);
    leaving->erase(leaving->begin() + static_cast<long>(i));
  }
}

class AllTextures final : public ptx::Textures {
 public:
  const ptx::Texture* texture(uint64_t handle) override { return find(false, handle); }
  const ptx::Texture* surface(uint64_t handle) override { return find(true, handle); }

 private:
  static const ptx::Texture* find(bool surface, uint64_t handle) {
    Sampler* s = look(surface, handle);
    return s ? &s->sampled : nullptr;
  }
};

bool set_format(CUarray_format f, unsigned channels, ptx::Texture* i) {
  unsigned bytes = channel_bytes(f);
  if (bytes == 0 || (channels != 1 && channels != 2 && channels != 4)) return false;
  i->channels = static_cast<uint8_t>(channels);
  i->channel_bits = static_cast<uint8_t>(bytes * 8);
  i->channel = f == CU_AD_FORMAT_HALF || f == CU_AD_FORMAT_FLOAT ? ptx::ChannelKind::kFloat
               : f == CU_AD_FORMAT_SIGNED_INT8 || f == CU_AD_FORMAT_SIGNED_INT16 ||
                       f == CU_AD_FORMAT_SIGNED_INT32
                   ? ptx::ChannelKind::kSigned
                   : ptx::ChannelKind::kUnsigned;
  return true;
}

ptx::TextureKind kind_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0)
    return layered ? ptx::TextureKind::kCubeLayered : ptx::TextureKind::kCube;
  if (layered) return d.Height == 0 ? ptx::TextureKind::k1DLayered : ptx::TextureKind::k2DLayered;
  return d.Depth != 0    ? ptx::TextureKind::k3D
         : d.Height != 0 ? ptx::TextureKind::k2D
                         : ptx::TextureKind::k1D;
}

void level_of(const Array& a, ptx::TextureLevel* l) {
  l->host = a.host();
  l->device = 0;
  l->width = static_cast<uint32_t>(a.width);
  l->height = static_cast<uint32_t>(a.rows);
  l->depth = static_cast<uint32_t>(a.slices);
  l->row_pitch = a.row_bytes();
  l->slice_pitch = a.slice_bytes();
}

CUresult describe_resource(const CUDA_RESOURCE_DESC& d, Sampler* s) {
  ptx::Texture& i = s->sampled;
  i.levels = s->levels;
  i.level_count = 1;
  if (d.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(d.resType)) {
    case CU_RESOURCE_TYPE_ARRAY:
      s->array = state()->handles.get<Array>(d.res.array.hArray);
      if (!s->array) return CUDA_ERROR_INVALID_HANDLE;
      i.kind = kind_of(s->array->descriptor);
      set_format(s->array->descriptor.Format, s->array->descriptor.NumChannels, &i);
      level_of(*s->array, &s->levels[0]);
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      if (s->surface) return CUDA_ERROR_INVALID_VALUE;
      s->mipmap = state()->handles.get<Mipmap>(d.res.mipmap.hMipmappedArray);
      if (!s->mipmap) return CUDA_ERROR_INVALID_HANDLE;
      const Mipmap& m = *s->mipmap;
      i.kind = kind_of(m.descriptor);
      set_format(m.descriptor.Format, m.descriptor.NumChannels, &i);
      i.level_count = static_cast<uint8_t>(m.levels.size() < 16 ? m.levels.size() : 16);
      for (int k = 0; k < i.level_count; ++k)
        level_of(*m.levels[static_cast<size_t>(k)], &s->levels[k]);
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& r = d.res.linear;
      if (s->surface || !set_format(r.format, r.numChannels, &i)) return CUDA_ERROR_INVALID_VALUE;
      uint64_t texel = i.channels * i.channel_bits / 8u;
      if (r.devPtr == 0 || r.devPtr % 16 != 0 || r.sizeInBytes == 0 ||
          r.sizeInBytes / texel > 1u << 28)
        return CUDA_ERROR_INVALID_VALUE;
      if (place_of(r.devPtr, r.sizeInBytes) == AddressSpace::Place::kBad)
        return CUDA_ERROR_INVALID_VALUE;
      i.kind = ptx::TextureKind::kLinear;
      s->levels[0] = {
          nullptr,       r.devPtr,     static_cast<uint32_t>(r.sizeInBytes / texel), 1, 1,
          r.sizeInBytes, r.sizeInBytes};
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& r = d.res.pitch2D;
      if (s->surface || !set_format(r.format, r.numChannels, &i)) return CUDA_ERROR_INVALID_VALUE;
      uint64_t texel = i.channels * i.channel_bits / 8u;
      if (r.devPtr == 0 || r.devPtr % 32 != 0 || r.width == 0 || r.height == 0 ||
          r.pitchInBytes % 32 != 0 || r.pitchInBytes < r.width * texel || r.width > 131072 ||
          r.height > 65000)
        return CUDA_ERROR_INVALID_VALUE;
      if (place_of(r.devPtr, (r.height - 1) * r.pitchInBytes + r.width * texel) ==
          AddressSpace::Place::kBad)
        return CUDA_ERROR_INVALID_VALUE;
      i.kind = ptx::TextureKind::k2D;
      s->levels[0] = {
          nullptr, r.devPtr,       static_cast<uint32_t>(r.width), static_cast<uint32_t>(r.height),
          1,       r.pitchInBytes, r.pitchInBytes * r.height};
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult describe_sampling(const CUDA_TEXTURE_DESC& d, Sampler* s) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                              CU_TRSF_SEAMLESS_CUBEMAP;
  if ((d.flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  ptx::Texture& i = s->sampled;
  for (int k = 0; k < 3; ++k) {
    if (d.addressMode[k] > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
    i.address[k] = static_cast<ptx::AddressMode>(d.addressMode[k]);
  }
  if (d.filterMode > CU_TR_FILTER_MODE_LINEAR || d.mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR)
    return CUDA_ERROR_INVALID_VALUE;
  i.filter = static_cast<ptx::Filter>(d.filterMode);
  i.mipmap_filter = static_cast<ptx::Filter>(d.mipmapFilterMode);
  i.normalized = (d.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  bool integer = i.channel != ptx::ChannelKind::kFloat;
  bool as_integer = integer && ((d.flags & CU_TRSF_READ_AS_INTEGER) != 0 || i.channel_bits == 32);
  if (as_integer && i.filter == ptx::Filter::kLinear) return CUDA_ERROR_INVALID_VALUE;
  i.read_normalized = integer && !as_integer;
  i.srgb = (d.flags & CU_TRSF_SRGB) != 0;
  memcpy(i.border, d.borderColor, sizeof i.border);
  i.mipmap_bias = d.mipmapLevelBias;
  i.mipmap_min = d.minMipmapLevelClamp;
  i.mipmap_max = d.maxMipmapLevelClamp;
  return CUDA_SUCCESS;
}

// Part of the levels and layers, in the array's own format.
CUresult describe_view(const CUDA_RESOURCE_VIEW_DESC& v, Sampler* s) {
  if (!s->array && !s->mipmap) return CUDA_ERROR_INVALID_VALUE;
  ptx::Texture& i = s->sampled;
  if (v.format != CU_RES_VIEW_FORMAT_NONE) {
    // The formats go in groups of three channel counts: see the order in cuda.h.
    unsigned group = (v.format - 1) / 3, channels = 1u << (v.format - 1) % 3;
    static const uint8_t bits[] = {8, 8, 16, 16, 32, 32, 16, 32};
    if (group >= sizeof bits) return CUDA_ERROR_NOT_SUPPORTED;  // block compression
    if (channels != i.channels || bits[group] != i.channel_bits) return CUDA_ERROR_INVALID_VALUE;
    i.channel = group >= 6       ? ptx::ChannelKind::kFloat
                : group % 2 != 0 ? ptx::ChannelKind::kSigned
                                 : ptx::ChannelKind::kUnsigned;
  }
  unsigned first = v.firstMipmapLevel, last = v.lastMipmapLevel;
  if (first > last || last >= i.level_count) return CUDA_ERROR_INVALID_VALUE;
  i.levels = s->levels + first;
  i.level_count = static_cast<uint8_t>(last - first + 1);
  if (i.kind == ptx::TextureKind::k1D || i.kind == ptx::TextureKind::k2D ||
      i.kind == ptx::TextureKind::k3D)
    return CUDA_SUCCESS;
  if (v.firstLayer > v.lastLayer || v.lastLayer >= s->levels[0].depth)
    return CUDA_ERROR_INVALID_VALUE;
  for (ptx::TextureLevel& l : s->levels) {
    if (!l.host) continue;
    l.host += v.firstLayer * l.slice_pitch;
    l.depth = v.lastLayer - v.firstLayer + 1;
  }
  return CUDA_SUCCESS;
}

CUresult enter_table(Ref<Sampler> s, uint64_t* out) {
  Lock lock(table_mutex());
  sweep();
  for (size_t i = 0; i < kSlots; ++i) {
    if (slots[s->surface][i].load()) continue;
    s->retain();  // the table's
    slots[s->surface][i].store(s.get(), std::memory_order_release);
    *out = base_of(s->surface) + 1 + i;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult leave_table(bool surface, uint64_t handle) {
  CURRENT(c);
  std::vector<Point> work = submitted_work();
  Lock lock(table_mutex());
  sweep();
  const size_t slot = handle - base_of(surface) - 1;
  if (!look(surface, handle) || is_leaving(surface, slot)) return CUDA_ERROR_INVALID_VALUE;
  if (work.empty()) {
    empty(surface, slot);
  } else {
    if (!leaving) leaving = new std::vector<Leaving>;
    leaving->push_back({surface, slot, std::move(work)});
  }
  return CUDA_SUCCESS;
}

CUresult find(bool surface, uint64_t handle, Ref<Sampler>* out) {
  Lock lock(table_mutex());
  const bool gone = is_leaving(surface, handle - base_of(surface) - 1);
  *out = Ref<Sampler>(gone ? nullptr : look(surface, handle));
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult create(uint64_t* out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
                const CUDA_RESOURCE_VIEW_DESC* view, bool surface) {
  if (!out || !resource || (!surface && !texture)) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Ref<Sampler> s;
  if (CUresult r = make_sampler(*resource, surface ? nullptr : texture, view, &s);
      r != CUDA_SUCCESS)
    return r;
  s->context = c->id;
  return enter_table(s, out);
}

}  // namespace

CUresult make_sampler(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC* texture,
                      const CUDA_RESOURCE_VIEW_DESC* view, Ref<Sampler>* out) {
  auto s = Ref<Sampler>::adopt(new Sampler);
  s->surface = !texture;
  s->resource = resource;
  CUresult r = describe_resource(resource, s.get());
  if (r == CUDA_SUCCESS && s->surface &&
      (!s->array || (s->array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0))
    r = CUDA_ERROR_INVALID_VALUE;
  if (r == CUDA_SUCCESS && view) {
    s->view = *view;
    s->has_view = true;
    r = describe_view(*view, s.get());
  }
  if (r == CUDA_SUCCESS && texture) {
    s->texture = *texture;
    r = describe_sampling(*texture, s.get());
  }
  if (r == CUDA_SUCCESS) *out = std::move(s);
  return r;
}

ptx::Textures* all_textures() {
  // Constant: kernels of several streams ask for it first at the same time.
  static constinit AllTextures all;
  return &all;
}

void forget_destroyed_samplers() {
  Lock lock(table_mutex());
  sweep();
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource,
                             const CUDA_TEXTURE_DESC* texture,
                             const CUDA_RESOURCE_VIEW_DESC* view) {
  ENTER(cuTexObjectCreate);
  uint64_t handle;
  CUresult r = create(&handle, resource, texture, view, false);
  if (r == CUDA_SUCCESS && out) *out = handle;
  return !out ? CUDA_ERROR_INVALID_VALUE : r;
}
SIMGPU_API cuTexObjectDestroy(CUtexObject handle) {
  ENTER(cuTexObjectDestroy);
  return leave_table(false, handle);
}
SIMGPU_API cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject handle) {
  ENTER(cuTexObjectGetResourceDesc);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Sampler> s;
  if (CUresult r = find(false, handle, &s); r != CUDA_SUCCESS) return r;
  *out = s->resource;
  return CUDA_SUCCESS;
}
SIMGPU_API cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject handle) {
  ENTER(cuTexObjectGetTextureDesc);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Sampler> s;
  if (CUresult r = find(false, handle, &s); r != CUDA_SUCCESS) return r;
  *out = s->texture;
  return CUDA_SUCCESS;
}
SIMGPU_API cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject handle) {
  ENTER(cuTexObjectGetResourceViewDesc);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Sampler> s;
  if (CUresult r = find(false, handle, &s); r != CUDA_SUCCESS) return r;
  if (!s->has_view) return CUDA_ERROR_INVALID_VALUE;
  *out = s->view;
  return CUDA_SUCCESS;
}

SIMGPU_API cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* resource) {
  ENTER(cuSurfObjectCreate);
  uint64_t handle;
  CUresult r = create(&handle, resource, nullptr, nullptr, true);
  if (r == CUDA_SUCCESS && out) *out = handle;
  return !out ? CUDA_ERROR_INVALID_VALUE : r;
}
SIMGPU_API cuSurfObjectDestroy(CUsurfObject handle) {
  ENTER(cuSurfObjectDestroy);
  return leave_table(true, handle);
}
SIMGPU_API cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject handle) {
  ENTER(cuSurfObjectGetResourceDesc);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Sampler> s;
  if (CUresult r = find(true, handle, &s); r != CUDA_SUCCESS) return r;
  *out = s->resource;
  return CUDA_SUCCESS;
}
