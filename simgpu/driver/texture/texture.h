// Texture and surface objects and references. An object's handle is a number that kernels see: a
// slot in one table of the process, the lowest free one, so that equal creations give equal
// handles. A reference is a variable of a module: kernels name it, and what a launch sees is what
// the reference said when the launch was called.
#pragma once

#include <vector>

#include "driver/context/context.h"
#include "driver/texture/array.h"
#include "ptx/texture.h"

namespace simgpu {

class Module;

// What a kernel samples, as the engine reads it, with a reference to the memory below. Immutable.
class Sampler : public RefCounted {
 public:
  bool surface = false;
  CUDA_RESOURCE_DESC resource = {};
  CUDA_TEXTURE_DESC texture = {};
  CUDA_RESOURCE_VIEW_DESC view = {};
  bool has_view = false;
  uint64_t context = 0;
  Ref<Array> array;
  Ref<Mipmap> mipmap;
  ptx::Texture sampled = {};  // the texture or surface as the engine reads it
  ptx::TextureLevel levels[16] = {};
};
// `texture` is null for a surface; `view` may be.
CUresult make_sampler(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC* texture,
                      const CUDA_RESOURCE_VIEW_DESC* view, Ref<Sampler>*);

// Every object of the process.
ptx::Textures* all_textures();

// Releases what destroyed objects held for work that is done by now.
void forget_destroyed_samplers();

// One .texref of a module, or what cuTexRefCreate made.
class TextureReference : public Object {
 public:
  static constexpr Kind kKind = Kind::kTextureReference;
  TextureReference() : Object(kKind) {}
  const char* name = nullptr;  // the module's
  uint64_t address = 0;        // 0: of no module

  Mutex mutex;  // guards the rest
  bool bound = false;
  CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8;
  unsigned channels = 1;
  CUDA_RESOURCE_DESC resource = {};
  CUDA_TEXTURE_DESC texture = {};
};

// One .surfref of a module.
class SurfaceReference : public Object {
 public:
  static constexpr Kind kKind = Kind::kSurfaceReference;
  SurfaceReference() : Object(kKind) {}
  const char* name = nullptr;
  uint64_t address = 0;

  Mutex mutex;
  CUarray array = nullptr;
};

// The bindings of a module's references at one moment; other handles are looked up as in
// all_textures.
class BoundReferences : public RefCounted, public ptx::Textures {
 public:
  const ptx::Texture* texture(uint64_t handle) override { return find(handle, false); }
  const ptx::Texture* surface(uint64_t handle) override { return find(handle, true); }
  struct Entry {
    uint64_t address;
    Ref<Sampler> sampler;  // null: bound to nothing that can be sampled
  };
  std::vector<Entry> entries;

 private:
  const ptx::Texture* find(uint64_t handle, bool surface);
};
// Returns null if the module has no texture references.
Ref<BoundReferences> bind_references(const Module&);

}  // namespace simgpu
