// Texture and surface references: variables of a module that calls bind to arrays and memory, with
// settings how to read them. The driver reports only a part of the settings, so every setting is
// kept, in the order in which the last of each kind was made, and made again.
//
// Owner: the registry. Threads: registry().lock, or the restore's worker. Errors: the report's
// failure.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

enum class ReferenceSettingKind : uint8_t {
  kFormat,
  kArray,
  kMipmap,
  kAddress,
  kRows,        // cuTexRefSetAddress2D
  kRowsStrict,  // its last version, which checks the address
  kAddressMode0,
  kAddressMode1,
  kAddressMode2,
  kFilter,
  kMipmapFilter,
  kBias,
  kClamp,
  kAnisotropy,
  kBorder,
  kFlags,
};

struct ReferenceSetting {
  ReferenceSettingKind kind;
  uint64_t numbers[2];  // what the call took; arrays by their names
  float reals[4];
  CUDA_ARRAY_DESCRIPTOR rows;
};

struct ReferenceObject : Object {  // kTextureReference, kSurfaceReference
  uint64_t module = 0;             // name; 0: made by cuTexRefCreate
  char* symbol = nullptr;          // in the module
  Vector<ReferenceSetting> settings;
  Vector<uint64_t> functions;  // that have it as a parameter (cuParamSetTexRef)
};

bool replay_reference(ReferenceObject* r, DeviceReport* report);  // the handle, with its module
bool replay_reference_settings(DeviceReport* report);  // when arrays and memory are there

}  // namespace gpuckpt::device
