#include "device/objects/arrays.h"

#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

uint64_t learnt_bytes;

// Bytes of one texel; 0: not known.
uint64_t texel_bytes(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  uint64_t channel = 0;
  switch (static_cast<int>(d.Format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      channel = 1;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      channel = 2;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      channel = 4;
      break;
  }
  return channel * d.NumChannels;
}

CUDA_MEMCPY3D whole(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  CUDA_MEMCPY3D c = {};
  c.WidthInBytes = d.Width * texel_bytes(d);
  c.Height = d.Height ? d.Height : 1;
  c.Depth = d.Depth ? d.Depth : 1;
  c.srcPitch = c.dstPitch = c.WidthInBytes;
  c.srcHeight = c.dstHeight = c.Height;
  return c;
}
uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  CUDA_MEMCPY3D c = whole(d);
  return c.WidthInBytes * c.Height * c.Depth;
}

CUresult read(CUarray from, const CUDA_ARRAY3D_DESCRIPTOR& d, uint8_t* to) {
  CUDA_MEMCPY3D c = whole(d);
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = from;
  c.dstMemoryType = CU_MEMORYTYPE_HOST;
  c.dstHost = to;
  return real().cuMemcpy3D_v2(&c);
}
CUresult write(CUarray to, const CUDA_ARRAY3D_DESCRIPTOR& d, const uint8_t* from) {
  CUDA_MEMCPY3D c = whole(d);
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = from;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = to;
  return real().cuMemcpy3D_v2(&c);
}

template <typename T>
void each_of(ObjectType type, Vector<T*>* out) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == type) out->push(static_cast<T*>(o));
}

// Calls f(array, descriptor, place in `texels`) for each level.
template <typename F>
CUresult each_level(CUmipmappedArray mipmap, unsigned levels, F f) {
  uint64_t at = 0;
  for (unsigned i = 0; i < levels; ++i) {
    CUarray array = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR d = {};
    CUresult result = real().cuMipmappedArrayGetLevel(&array, mipmap, i);
    if (result == CUDA_SUCCESS) result = real().cuArray3DGetDescriptor_v2(&d, array);
    if (result == CUDA_SUCCESS) result = f(array, d, at);
    if (result != CUDA_SUCCESS) return result;
    at += bytes_of(d);
  }
  return CUDA_SUCCESS;
}

bool cannot(DeviceReport* report, int code, const char* what, CUresult result) {
  const char* text = nullptr;
  real().cuGetErrorName(result, &text);
  return report->fail(code, "%s: %s (%d)", what, text ? text : "unknown error",
                      static_cast<int>(result));
}

}  // namespace

uint64_t context_of_array(uint64_t name) {
  MutexLock guard(registry().lock);
  auto* a = registry().find<ArrayObject>(ObjectType::kArray, name);
  return a ? a->context : 0;
}

uint64_t array_bytes() { return learnt_bytes; }

bool learn_arrays(DeviceReport* report) {
  const char* unknown = "cuArray3DCreate: an array has a format whose size is not known";
  const char* none = "no memory for the contents of an array";
  Vector<ArrayObject*> arrays;
  Vector<MipmapObject*> mipmaps;
  each_of(ObjectType::kArray, &arrays);
  each_of(ObjectType::kMipmap, &mipmaps);
  learnt_bytes = 0;
  for (ArrayObject* a : arrays) {
    if (a->mipmap) continue;
    if (!texel_bytes(a->descriptor)) return report->fail(kExitRefused, "%s", unknown);
    WithContext with(a->context);
    if (!a->texels) a->texels = static_cast<uint8_t*>(allocate(bytes_of(a->descriptor)));
    if (!a->texels) return report->fail(kExitError, "%s", none);
    CUresult result = read(real_of<CUarray>(Kind::kArray, a->name), a->descriptor, a->texels);
    if (result != CUDA_SUCCESS)
      return cannot(report, kExitError, "an array cannot be read", result);
    learnt_bytes += bytes_of(a->descriptor);
  }
  for (MipmapObject* m : mipmaps) {
    if (!texel_bytes(m->descriptor)) return report->fail(kExitRefused, "%s", unknown);
    WithContext with(m->context);
    auto handle = real_of<CUmipmappedArray>(Kind::kMipmappedArray, m->name);
    uint64_t total = 0;
    CUresult result =
        each_level(handle, m->levels, [&](CUarray, const CUDA_ARRAY3D_DESCRIPTOR& d, uint64_t at) {
          total = at + bytes_of(d);
          return CUDA_SUCCESS;
        });
    if (!m->texels) m->texels = static_cast<uint8_t*>(allocate(total));
    if (!m->texels) return report->fail(kExitError, "%s", none);
    if (result == CUDA_SUCCESS)
      result = each_level(handle, m->levels,
                          [&](CUarray array, const CUDA_ARRAY3D_DESCRIPTOR& d, uint64_t at) {
                            return read(array, d, m->texels + at);
                          });
    if (result != CUDA_SUCCESS)
      return cannot(report, kExitError, "a mipmapped array cannot be read", result);
    learnt_bytes += total;
  }
  return true;
}

namespace {

bool replay_array(ArrayObject* a, DeviceReport* report) {
  WithContext with(a->context);
  CUarray now = nullptr;
  CUresult result;
  if (a->mipmap) {
    result = real().cuMipmappedArrayGetLevel(
        &now, real_of<CUmipmappedArray>(Kind::kMipmappedArray, a->mipmap), a->level);
  } else {
    result = real().cuArray3DCreate_v2(&now, &a->descriptor);
    if (result == CUDA_SUCCESS && a->texels) result = write(now, a->descriptor, a->texels);
  }
  if (result != CUDA_SUCCESS)
    return cannot(report, kExitIncompatible, "an array cannot be made again", result);
  bind(Kind::kArray, a->name, bits(now));
  return true;
}

bool replay_mipmap(MipmapObject* m, DeviceReport* report) {
  WithContext with(m->context);
  CUmipmappedArray now = nullptr;
  CUresult result = real().cuMipmappedArrayCreate(&now, &m->descriptor, m->levels);
  if (result == CUDA_SUCCESS && m->texels)
    result = each_level(now, m->levels,
                        [&](CUarray array, const CUDA_ARRAY3D_DESCRIPTOR& d, uint64_t at) {
                          return write(array, d, m->texels + at);
                        });
  if (result != CUDA_SUCCESS)
    return cannot(report, kExitIncompatible, "a mipmapped array cannot be made again", result);
  bind(Kind::kMipmappedArray, m->name, bits(now));
  return true;
}

CUresult make_texture(const TextureObject* t, uint64_t* now) {
  CUDA_RESOURCE_DESC resource = t->resource;
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY)
    resource.res.array.hArray = real_of<CUarray>(Kind::kArray, bits(resource.res.array.hArray));
  if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    resource.res.mipmap.hMipmappedArray =
        real_of<CUmipmappedArray>(Kind::kMipmappedArray, bits(resource.res.mipmap.hMipmappedArray));
  unsigned long long value = 0;
  CUresult result = t->surface ? real().cuSurfObjectCreate(&value, &resource)
                               : real().cuTexObjectCreate(&value, &resource, &t->texture,
                                                          t->has_view ? &t->view : nullptr);
  *now = value;
  return result;
}
void end_texture(bool surface, uint64_t value) {
  if (surface)
    real().cuSurfObjectDestroy(value);
  else
    real().cuTexObjectDestroy(value);
}

// Values that were free at the snapshot are taken for a moment, until the old one comes.
bool replay_texture(TextureObject* t, DeviceReport* report) {
  WithContext with(t->context);
  Vector<uint64_t> fillers;
  uint64_t now = 0;
  CUresult result = make_texture(t, &now);
  while (result == CUDA_SUCCESS && now != t->name && fillers.size() < 4096 && fillers.push(now))
    result = make_texture(t, &now);
  for (uint64_t filler : fillers)
    if (filler != now) end_texture(t->surface, filler);
  const char* what = t->surface ? "surface" : "texture";
  if (result != CUDA_SUCCESS)
    return cannot(report, kExitIncompatible, "a texture or surface object cannot be made again",
                  result);
  if (now != t->name)
    return report->fail(
        kExitIncompatible,
        "a %s object was 0x%lx and would be 0x%lx after the restore; kernels hold the old "
        "value",
        what, static_cast<unsigned long>(t->name), static_cast<unsigned long>(now));
  bind(t->surface ? Kind::kSurfObject : Kind::kTexObject, t->name, now);
  return true;
}

}  // namespace

bool replay_arrays(DeviceReport* report) {
  Vector<ArrayObject*> arrays;
  Vector<MipmapObject*> mipmaps;
  Vector<TextureObject*> textures;
  each_of(ObjectType::kArray, &arrays);
  each_of(ObjectType::kMipmap, &mipmaps);
  each_of(ObjectType::kTexture, &textures);
  each_of(ObjectType::kSurface, &textures);
  for (MipmapObject* m : mipmaps)
    if (!replay_mipmap(m, report)) return false;
  for (ArrayObject* a : arrays)
    if (!replay_array(a, report)) return false;
  // By value: low ones first, as the driver gives them.
  for (size_t done = 0; done < textures.size(); ++done) {
    size_t least = done;
    for (size_t i = done + 1; i < textures.size(); ++i)
      if (textures[i]->name < textures[least]->name) least = i;
    TextureObject* t = textures[least];
    textures[least] = textures[done];
    textures[done] = t;
    if (!replay_texture(t, report)) return false;
  }
  return true;
}

}  // namespace gpuckpt::device
