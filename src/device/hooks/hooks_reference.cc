// Texture and surface references as the program finds and sets them. See references.h.
#include "device/hooks/hooks.h"
#include "device/modules/references.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

using SettingKind = ReferenceSettingKind;

bool binds(SettingKind kind) {
  return kind >= SettingKind::kArray && kind <= SettingKind::kRowsStrict;
}

ReferenceObject* texture(CUtexref handle) {
  return registry().find<ReferenceObject>(ObjectType::kTextureReference,
                                          name_from(Kind::kTexref, handle));
}

void note_reference(ObjectType type, uint64_t name, uint64_t module, const char* symbol) {
  uint64_t context = current_context_name();
  MutexLock guard(registry().lock);
  if (registry().find<ReferenceObject>(type, name)) return;
  ModuleObject* owner = registry().find<ModuleObject>(ObjectType::kModule, module);
  auto* r = registry().add<ReferenceObject>(type, name, owner ? owner->context : context);
  if (!r) return;
  r->module = module;
  if (symbol) r->symbol = keep_text(symbol);
}

// In place of the last one of its kind; a binding in place of any other binding.
void keep_setting(ReferenceObject* r, const ReferenceSetting& setting) {
  if (!r) return registry().refuse("cuTexRefSet*: a texture reference that is not known");
  for (size_t i = 0; i < r->settings.size(); ++i) {
    const SettingKind had = r->settings[i].kind;
    if (had != setting.kind && !(binds(had) && binds(setting.kind))) continue;
    r->settings.remove_at(i);
    break;
  }
  if (!r->settings.push(setting)) registry().refuse("no memory for a texture reference");
}

CUresult note_setting(CUresult result, CUtexref handle, SettingKind kind, uint64_t first,
                      uint64_t second = 0) {
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  keep_setting(texture(handle), {kind, {first, second}, {}, {}});
  return result;
}

CUresult note_reals(CUresult result, CUtexref handle, SettingKind kind, const float* reals,
                    size_t count) {
  if (result != CUDA_SUCCESS) return result;
  ReferenceSetting setting = {kind, {}, {}, {}};
  __builtin_memcpy(setting.reals, reals, count * sizeof *reals);
  MutexLock guard(registry().lock);
  keep_setting(texture(handle), setting);
  return result;
}

// An array gives its format, which stays when memory takes the array's place.
void keep_format(CUtexref handle) {
  CUarray_format format;
  int channels;
  if (real().cuTexRefGetFormat(&format, &channels, handle) == CUDA_SUCCESS)
    note_setting(CUDA_SUCCESS, handle, SettingKind::kFormat, format,
                 static_cast<uint64_t>(channels));
}

CUresult note_memory(CUresult result, CUtexref handle, CUdeviceptr address, size_t bytes) {
  if (result == CUDA_SUCCESS) keep_format(handle);
  return note_setting(result, handle, SettingKind::kAddress, address, bytes);
}

CUresult note_rows(CUresult result, CUtexref handle, SettingKind kind,
                   const CUDA_ARRAY_DESCRIPTOR& rows, CUdeviceptr address, size_t pitch) {
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  keep_setting(texture(handle), {kind, {address, pitch}, {}, rows});
  return result;
}

}  // namespace
}  // namespace device

using namespace device;

CUresult hook_cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  CUresult result = real().cuModuleGetTexRef(pTexRef, hmod, name);
  if (result == CUDA_SUCCESS)
    note_reference(ObjectType::kTextureReference, new_name(Kind::kTexref, *pTexRef),
                   name_from(Kind::kModule, hmod), name);
  return result;
}
CUresult hook_cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  CUresult result = real().cuModuleGetSurfRef(pSurfRef, hmod, name);
  if (result == CUDA_SUCCESS)
    note_reference(ObjectType::kSurfaceReference, new_name(Kind::kSurfref, *pSurfRef),
                   name_from(Kind::kModule, hmod), name);
  return result;
}
CUresult hook_cuTexRefCreate(CUtexref* pTexRef) {
  CUresult result = real().cuTexRefCreate(pTexRef);
  if (result == CUDA_SUCCESS)
    note_reference(ObjectType::kTextureReference, new_name(Kind::kTexref, *pTexRef), 0, nullptr);
  return result;
}
CUresult hook_cuTexRefDestroy(CUtexref hTexRef) {
  return registry().end(ObjectType::kTextureReference, name_from(Kind::kTexref, hTexRef),
                        [&] { return real().cuTexRefDestroy(hTexRef); });
}

CUresult hook_cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  return note_setting(real().cuTexRefSetArray(hTexRef, hArray, Flags), hTexRef, SettingKind::kArray,
                      name_from(Kind::kArray, hArray), Flags);
}
CUresult hook_cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray,
                                        unsigned int Flags) {
  return note_setting(real().cuTexRefSetMipmappedArray(hTexRef, hMipmappedArray, Flags), hTexRef,
                      SettingKind::kMipmap, name_from(Kind::kMipmappedArray, hMipmappedArray),
                      Flags);
}
CUresult hook_cuTexRefSetAddress(unsigned int* ByteOffset, CUtexref hTexRef, CUdeviceptr_v1 dptr,
                                 unsigned int bytes) {
  return note_memory(real().cuTexRefSetAddress(ByteOffset, hTexRef, dptr, bytes), hTexRef, dptr,
                     bytes);
}
CUresult hook_cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr,
                                    size_t bytes) {
  return note_memory(real().cuTexRefSetAddress_v2(ByteOffset, hTexRef, dptr, bytes), hTexRef, dptr,
                     bytes);
}
CUresult hook_cuTexRefSetAddress2D(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR_v1* desc,
                                   CUdeviceptr_v1 dptr, unsigned int Pitch) {
  CUresult result = real().cuTexRefSetAddress2D(hTexRef, desc, dptr, Pitch);
  if (result != CUDA_SUCCESS) return result;
  return note_rows(result, hTexRef, SettingKind::kRows,
                   {desc->Width, desc->Height, desc->Format, desc->NumChannels}, dptr, Pitch);
}
CUresult hook_cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                      CUdeviceptr dptr, size_t Pitch) {
  CUresult result = real().cuTexRefSetAddress2D_v2(hTexRef, desc, dptr, Pitch);
  if (result != CUDA_SUCCESS) return result;
  return note_rows(result, hTexRef, SettingKind::kRows, *desc, dptr, Pitch);
}
CUresult hook_cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                      CUdeviceptr dptr, size_t Pitch) {
  CUresult result = real().cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
  if (result != CUDA_SUCCESS) return result;
  return note_rows(result, hTexRef, SettingKind::kRowsStrict, *desc, dptr, Pitch);
}
CUresult hook_cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  return note_setting(real().cuTexRefSetFormat(hTexRef, fmt, NumPackedComponents), hTexRef,
                      SettingKind::kFormat, fmt, static_cast<uint64_t>(NumPackedComponents));
}
CUresult hook_cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am) {
  CUresult result = real().cuTexRefSetAddressMode(hTexRef, dim, am);
  if (dim < 0 || dim > 2) return result;
  return note_setting(result, hTexRef,
                      static_cast<SettingKind>(static_cast<int>(SettingKind::kAddressMode0) + dim),
                      am);
}
CUresult hook_cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return note_setting(real().cuTexRefSetFilterMode(hTexRef, fm), hTexRef, SettingKind::kFilter, fm);
}
CUresult hook_cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return note_setting(real().cuTexRefSetMipmapFilterMode(hTexRef, fm), hTexRef,
                      SettingKind::kMipmapFilter, fm);
}
CUresult hook_cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias) {
  return note_reals(real().cuTexRefSetMipmapLevelBias(hTexRef, bias), hTexRef, SettingKind::kBias,
                    &bias, 1);
}
CUresult hook_cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp,
                                          float maxMipmapLevelClamp) {
  const float both[] = {minMipmapLevelClamp, maxMipmapLevelClamp};
  return note_reals(
      real().cuTexRefSetMipmapLevelClamp(hTexRef, minMipmapLevelClamp, maxMipmapLevelClamp),
      hTexRef, SettingKind::kClamp, both, 2);
}
CUresult hook_cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso) {
  return note_setting(real().cuTexRefSetMaxAnisotropy(hTexRef, maxAniso), hTexRef,
                      SettingKind::kAnisotropy, maxAniso);
}
CUresult hook_cuTexRefSetBorderColor(CUtexref hTexRef, float* pBorderColor) {
  return note_reals(real().cuTexRefSetBorderColor(hTexRef, pBorderColor), hTexRef,
                    SettingKind::kBorder, pBorderColor, 4);
}
CUresult hook_cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags) {
  return note_setting(real().cuTexRefSetFlags(hTexRef, Flags), hTexRef, SettingKind::kFlags, Flags);
}

CUresult hook_cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef) {
  CUresult result = real().cuParamSetTexRef(hfunc, texunit, hTexRef);
  if (result != CUDA_SUCCESS) return result;
  uint64_t function = name_from(Kind::kFunction, hfunc);
  MutexLock guard(registry().lock);
  if (ReferenceObject* r = texture(hTexRef)) {
    for (uint64_t known : r->functions)
      if (known == function) return result;
    r->functions.push(function);
  }
  return result;
}

CUresult hook_cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags) {
  CUresult result = real().cuSurfRefSetArray(hSurfRef, hArray, Flags);
  if (result != CUDA_SUCCESS) return result;
  uint64_t array = name_from(Kind::kArray, hArray);
  MutexLock guard(registry().lock);
  keep_setting(registry().find<ReferenceObject>(ObjectType::kSurfaceReference,
                                                name_from(Kind::kSurfref, hSurfRef)),
               {SettingKind::kArray, {array, Flags}, {}, {}});
  return result;
}

}  // namespace gpuckpt
