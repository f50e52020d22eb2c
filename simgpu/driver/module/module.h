// Modules, libraries, functions and kernels.
//
// A module is compiled code bound to one context. A library is an image that becomes a module in
// each context where it is used; its place in the module space is taken when it is loaded, so that
// use order does not matter.
#pragma once

#include <vector>

#include "driver/base/object.h"
#include "driver/context/context.h"
#include "driver/module/image.h"
#include "driver/texture/texture.h"

namespace simgpu {

class Library;
class Module;

// What a launch of the first driver API takes, set call by call.
struct FirstLaunch {
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0, size = 0;
  std::vector<uint8_t> parameters;
};

class Function : public Object {
 public:
  static constexpr Kind kKind = Kind::kFunction;
  Function(Module* m, uint32_t i, const ptx::KernelInfo* k)
      : Object(kKind), module(m), index(i), info(k) {}

  CUresult attribute(CUfunction_attribute, int*) const;
  CUresult set_attribute(CUfunction_attribute, int);

  Module* const module;  // outlives it (the module owns its functions)
  const uint32_t index;
  const ptx::KernelInfo* const info;
  std::atomic<int> max_dynamic_shared{48 * 1024};
  std::atomic<int> carveout{-1};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> cluster[3] = {};
  Mutex first_mutex;
  FirstLaunch first;
};

struct Variable {
  const ptx::VariableInfo* info;
  uint64_t address;
};

class Module : public Object {
 public:
  static constexpr Kind kKind = Kind::kModule;
  // Compiles and places. `offset`: where in the module space, ~0 for a place of its own.
  static CUresult load(Context&, const Image&, uint64_t offset, Ref<Module>*, char* log,
                       size_t log_bytes);
  // Bytes of the module space the image needs.
  static CUresult measure(const Image&, int sm, uint64_t* bytes, ptx::Module**, char* log,
                          size_t log_bytes);
  ~Module() override;

  void unload();  // handles and addresses end; code stays while launches hold it
  Function* function(const char* name) const;
  const Variable* variable(const char* name) const;

  Context* context = nullptr;  // valid until unload()
  uint64_t context_id = 0;
  int target = 0;  // .target, as 75
  ptx::Module* code = nullptr;
  Library* library = nullptr;
  std::vector<Ref<Function>> functions;
  std::vector<Variable> variables;
  std::vector<Ref<TextureReference>> textures;
  std::vector<Ref<SurfaceReference>> surfaces;
  bool handle_published = false;

 private:
  Module() : Object(kKind) {}
  CUresult place(Context&, uint64_t offset);

  void place_variables(Context&, bool managed, uint64_t at);
  void add_reference(const ptx::VariableInfo&, uint64_t at);

  uint64_t offset_ = ~0ull, base_ = 0, data_bytes_ = 0, managed_bytes_ = 0;
  bool own_place_ = false, loaded_ = false;
};

class Kernel : public Object {
 public:
  static constexpr Kind kKind = Kind::kKernel;
  Kernel(Library* l, uint32_t i) : Object(kKind), library(l), index(i) {}
  Library* const library;  // owns it
  const uint32_t index;
};

class Library : public Object {
 public:
  static constexpr Kind kKind = Kind::kLibrary;
  explicit Library(Ref<Image> i) : Object(kKind), image(std::move(i)) {}
  ~Library() override;
  // The module in `c`, made at first use.
  CUresult instance(Context& c, Ref<Module>*);
  CUresult function(Context&, uint32_t kernel, Ref<Function>*);
  void forget(Module*);

  const Ref<Image> image;
  uint64_t offset = ~0ull;      // in every context; ~0: each has a place of its own
  ptx::Module* code = nullptr;  // for names and kernel information; runs nowhere
  std::vector<Ref<Kernel>> kernels;
  Mutex mutex;
  std::vector<Ref<Module>> instances;
};

// A function by CUfunction, or a CUkernel passed as one, for `c`.
CUresult function_of(CUfunction, Context& c, Ref<Function>*);

}  // namespace simgpu
