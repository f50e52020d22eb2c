// Arrays, mipmaps, texture and surface objects.
//
// An array's texels have no address: a snapshot copies them into memory of the process, which is
// part of the snapshot, and a restore copies them back. Kernels hold texture and surface objects by
// value, so a replay must get the very same values.
//
// Owner: the registry. Threads: the device worker with the gate closed; context_of_array() takes
// registry().lock. Errors: the report's failure.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct ArrayObject : Object {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
  uint64_t mipmap = 0;  // name; 0: an array of its own
  unsigned level = 0;
  uint8_t* texels = nullptr;  // filled by the snapshot
};

struct MipmapObject : Object {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
  unsigned levels = 0;
  uint8_t* texels = nullptr;  // of all levels, one after the other
};

struct TextureObject : Object {  // name: its value
  bool surface = false, has_view = false;
  CUDA_RESOURCE_DESC resource = {};  // arrays by their names
  CUDA_TEXTURE_DESC texture = {};
  CUDA_RESOURCE_VIEW_DESC view = {};
};

// Context (name) of an array; 0: not known.
uint64_t context_of_array(uint64_t name);

bool learn_arrays(DeviceReport* report);   // gate closed, all idle
uint64_t array_bytes();                    // of all that were learnt
bool replay_arrays(DeviceReport* report);  // when memory is back at its place

}  // namespace gpuckpt::device
