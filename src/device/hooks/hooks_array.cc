// Arrays, textures and surfaces as the program makes and ends them. See arrays.h.
#include "device/hooks/hooks.h"
#include "device/objects/arrays.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

CUresult note_array(CUresult result, CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kArray, *out), context = current_context_name();
  MutexLock guard(registry().lock);
  auto* a = registry().add<ArrayObject>(ObjectType::kArray, name, context);
  if (a) a->descriptor = d;
  return result;
}

CUresult note_texture(CUresult result, uint64_t value, const CUDA_RESOURCE_DESC* resource,
                      const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view) {
  if (result != CUDA_SUCCESS) return result;
  bool surface = !texture;
  CUDA_RESOURCE_DESC named = *resource;
  if (named.resType == CU_RESOURCE_TYPE_ARRAY)
    named.res.array.hArray = handle_from<CUarray>(name_from(Kind::kArray, named.res.array.hArray));
  if (named.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    named.res.mipmap.hMipmappedArray = handle_from<CUmipmappedArray>(
        name_from(Kind::kMipmappedArray, named.res.mipmap.hMipmappedArray));
  uint64_t name = new_name(surface ? Kind::kSurfObject : Kind::kTexObject, value);
  uint64_t context = current_context_name();
  MutexLock guard(registry().lock);
  auto* t = registry().add<TextureObject>(surface ? ObjectType::kSurface : ObjectType::kTexture,
                                          name, context);
  if (!t) return result;
  t->surface = surface;
  t->resource = named;
  if (texture) t->texture = *texture;
  t->has_view = view != nullptr;
  if (view) t->view = *view;
  return result;
}

}  // namespace
}  // namespace device

using namespace device;

// The first driver API's descriptors have narrower fields.
CUresult hook_cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  CUresult result = real().cuArrayCreate(pHandle, pAllocateArray);
  CUDA_ARRAY3D_DESCRIPTOR d = {};
  if (result == CUDA_SUCCESS)
    d = {pAllocateArray->Width,  pAllocateArray->Height,      0,
         pAllocateArray->Format, pAllocateArray->NumChannels, 0};
  return note_array(result, pHandle, d);
}
CUresult hook_cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  CUresult result = real().cuArray3DCreate(pHandle, pAllocateArray);
  CUDA_ARRAY3D_DESCRIPTOR d = {};
  if (result == CUDA_SUCCESS)
    d = {pAllocateArray->Width,  pAllocateArray->Height,      pAllocateArray->Depth,
         pAllocateArray->Format, pAllocateArray->NumChannels, pAllocateArray->Flags};
  return note_array(result, pHandle, d);
}
CUresult hook_cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  CUresult result = real().cuArrayCreate_v2(pHandle, pAllocateArray);
  CUDA_ARRAY3D_DESCRIPTOR d = {};
  if (result == CUDA_SUCCESS)
    d = {pAllocateArray->Width,  pAllocateArray->Height,      0,
         pAllocateArray->Format, pAllocateArray->NumChannels, 0};
  return note_array(result, pHandle, d);
}
CUresult hook_cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  CUresult result = real().cuArray3DCreate_v2(pHandle, pAllocateArray);
  return note_array(result, pHandle,
                    result == CUDA_SUCCESS ? *pAllocateArray : CUDA_ARRAY3D_DESCRIPTOR{});
}
CUresult hook_cuArrayDestroy(CUarray hArray) {
  return registry().end(ObjectType::kArray, name_from(Kind::kArray, hArray),
                        [&] { return real().cuArrayDestroy(hArray); });
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                     const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                     unsigned int numMipmapLevels) {
  CUresult result = real().cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
  if (result != CUDA_SUCCESS) return result;
  unsigned levels = 0;  // as many as there really are
  CUarray ignored;
  while (levels < numMipmapLevels &&
         real().cuMipmappedArrayGetLevel(&ignored, *pHandle, levels) == CUDA_SUCCESS)
    ++levels;
  uint64_t name = new_name(Kind::kMipmappedArray, *pHandle), context = current_context_name();
  MutexLock guard(registry().lock);
  auto* m = registry().add<MipmapObject>(ObjectType::kMipmap, name, context);
  if (m) {
    m->descriptor = *pMipmappedArrayDesc;
    m->levels = levels;
  }
  return result;
}
CUresult hook_cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                       unsigned int level) {
  CUresult result = real().cuMipmappedArrayGetLevel(pLevelArray, hMipmappedArray, level);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kArray, *pLevelArray), context = current_context_name();
  uint64_t mipmap = name_from(Kind::kMipmappedArray, hMipmappedArray);
  MutexLock guard(registry().lock);
  if (registry().find<ArrayObject>(ObjectType::kArray, name)) return result;
  auto* a = registry().add<ArrayObject>(ObjectType::kArray, name, context);
  if (a) {
    a->mipmap = mipmap;
    a->level = level;
  }
  return result;
}
CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  uint64_t name = name_from(Kind::kMipmappedArray, hMipmappedArray);
  {
    MutexLock guard(registry().lock);
    const bool known = registry().find<MipmapObject>(ObjectType::kMipmap, name);
    for (Object *o = registry().first(), *next; known && o; o = next) {
      next = o->next;
      if (o->type != ObjectType::kArray || static_cast<ArrayObject*>(o)->mipmap != name) continue;
      if (translating()) drop(Kind::kArray, o->name);
      registry().remove(o);
    }
  }
  return registry().end(ObjectType::kMipmap, name,
                        [&] { return real().cuMipmappedArrayDestroy(hMipmappedArray); });
}

CUresult hook_cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                                const CUDA_TEXTURE_DESC* pTexDesc,
                                const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  CUresult result = real().cuTexObjectCreate(pTexObject, pResDesc, pTexDesc, pResViewDesc);
  return note_texture(result, result == CUDA_SUCCESS ? *pTexObject : 0, pResDesc, pTexDesc,
                      pResViewDesc);
}
CUresult hook_cuTexObjectDestroy(CUtexObject texObject) {
  return registry().end(ObjectType::kTexture, name_from(Kind::kTexObject, texObject),
                        [&] { return real().cuTexObjectDestroy(texObject); });
}
CUresult hook_cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  CUresult result = real().cuSurfObjectCreate(pSurfObject, pResDesc);
  return note_texture(result, result == CUDA_SUCCESS ? *pSurfObject : 0, pResDesc, nullptr,
                      nullptr);
}
CUresult hook_cuSurfObjectDestroy(CUsurfObject surfObject) {
  return registry().end(ObjectType::kSurface, name_from(Kind::kSurfObject, surfObject),
                        [&] { return real().cuSurfObjectDestroy(surfObject); });
}

}  // namespace gpuckpt
