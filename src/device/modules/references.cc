#include "device/modules/references.h"

#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

bool cannot(DeviceReport* report, const ReferenceObject* r, CUresult result) {
  const char* text = nullptr;
  real().cuGetErrorName(result, &text);
  return report->fail(kExitIncompatible, "the %s reference %s cannot be made again: %s (%d)",
                      r->type == ObjectType::kTextureReference ? "texture" : "surface",
                      r->symbol ? r->symbol : "of cuTexRefCreate", text ? text : "unknown error",
                      static_cast<int>(result));
}

CUresult apply(CUtexref now, const ReferenceSetting& s) {
  const uint64_t first = s.numbers[0];
  const auto second = static_cast<unsigned>(s.numbers[1]);
  size_t offset;
  float border[4];
  switch (s.kind) {
    case ReferenceSettingKind::kFormat:
      return real().cuTexRefSetFormat(now, static_cast<CUarray_format>(first),
                                      static_cast<int>(second));
    case ReferenceSettingKind::kArray:
      return real().cuTexRefSetArray(now, real_of<CUarray>(Kind::kArray, first), second);
    case ReferenceSettingKind::kMipmap:
      return real().cuTexRefSetMipmappedArray(
          now, real_of<CUmipmappedArray>(Kind::kMipmappedArray, first), second);
    case ReferenceSettingKind::kAddress:
      return real().cuTexRefSetAddress_v2(&offset, now, first, s.numbers[1]);
    case ReferenceSettingKind::kRows:
      return real().cuTexRefSetAddress2D_v2(now, &s.rows, first, s.numbers[1]);
    case ReferenceSettingKind::kRowsStrict:
      return real().cuTexRefSetAddress2D_v3(now, &s.rows, first, s.numbers[1]);
    case ReferenceSettingKind::kAddressMode0:
    case ReferenceSettingKind::kAddressMode1:
    case ReferenceSettingKind::kAddressMode2:
      return real().cuTexRefSetAddressMode(
          now, static_cast<int>(s.kind) - static_cast<int>(ReferenceSettingKind::kAddressMode0),
          static_cast<CUaddress_mode>(first));
    case ReferenceSettingKind::kFilter:
      return real().cuTexRefSetFilterMode(now, static_cast<CUfilter_mode>(first));
    case ReferenceSettingKind::kMipmapFilter:
      return real().cuTexRefSetMipmapFilterMode(now, static_cast<CUfilter_mode>(first));
    case ReferenceSettingKind::kBias:
      return real().cuTexRefSetMipmapLevelBias(now, s.reals[0]);
    case ReferenceSettingKind::kClamp:
      return real().cuTexRefSetMipmapLevelClamp(now, s.reals[0], s.reals[1]);
    case ReferenceSettingKind::kAnisotropy:
      return real().cuTexRefSetMaxAnisotropy(now, static_cast<unsigned>(first));
    case ReferenceSettingKind::kBorder:
      __builtin_memcpy(border, s.reals, sizeof border);
      return real().cuTexRefSetBorderColor(now, border);
    case ReferenceSettingKind::kFlags:
      return real().cuTexRefSetFlags(now, static_cast<unsigned>(first));
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// What a binding leads to may have ended since: then nothing can be read through it, and nothing is
// bound again.
bool leads_nowhere(const ReferenceSetting& s, CUresult result) {
  switch (s.kind) {
    case ReferenceSettingKind::kArray:
      return !registry().find<Object>(ObjectType::kArray, s.numbers[0]);
    case ReferenceSettingKind::kMipmap:
      return !registry().find<Object>(ObjectType::kMipmap, s.numbers[0]);
    case ReferenceSettingKind::kAddress:
    case ReferenceSettingKind::kRows:
    case ReferenceSettingKind::kRowsStrict:
      return result == CUDA_ERROR_INVALID_VALUE;
    default:
      return false;
  }
}

CUresult apply_all(ReferenceObject* r) {
  const bool surface = r->type == ObjectType::kSurfaceReference;
  for (const ReferenceSetting& s : r->settings) {
    if (leads_nowhere(s, CUDA_SUCCESS)) continue;
    CUresult result = surface
                          ? real().cuSurfRefSetArray(real_of<CUsurfref>(Kind::kSurfref, r->name),
                                                     real_of<CUarray>(Kind::kArray, s.numbers[0]),
                                                     static_cast<unsigned>(s.numbers[1]))
                          : apply(real_of<CUtexref>(Kind::kTexref, r->name), s);
    if (result != CUDA_SUCCESS && !leads_nowhere(s, result)) return result;
  }
  for (uint64_t function : r->functions) {
    if (!registry().find<Object>(ObjectType::kFunction, function)) continue;
    CUresult result =
        real().cuParamSetTexRef(real_of<CUfunction>(Kind::kFunction, function), CU_PARAM_TR_DEFAULT,
                                real_of<CUtexref>(Kind::kTexref, r->name));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool replay_reference(ReferenceObject* r, DeviceReport* report) {
  WithContext with(r->context);
  const bool surface = r->type == ObjectType::kSurfaceReference;
  CUtexref texture = nullptr;
  CUsurfref surface_now = nullptr;
  auto module = real_of<CUmodule>(Kind::kModule, r->module);
  CUresult result = surface     ? real().cuModuleGetSurfRef(&surface_now, module, r->symbol)
                    : r->module ? real().cuModuleGetTexRef(&texture, module, r->symbol)
                                : real().cuTexRefCreate(&texture);
  if (result != CUDA_SUCCESS) return cannot(report, r, result);
  if (surface)
    bind(Kind::kSurfref, r->name, bits(surface_now));
  else
    bind(Kind::kTexref, r->name, bits(texture));
  return true;
}

bool replay_reference_settings(DeviceReport* report) {
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kTextureReference && o->type != ObjectType::kSurfaceReference)
      continue;
    auto* r = static_cast<ReferenceObject*>(o);
    WithContext with(r->context);
    if (CUresult result = apply_all(r); result != CUDA_SUCCESS) return cannot(report, r, result);
  }
  return true;
}

}  // namespace gpuckpt::device
