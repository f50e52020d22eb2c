// Modules and libraries: their images by content, and everything handed out from them.
#include "base/text/text.h"
#include "device/base/jit_options.h"
#include "device/base/lock_order.h"
#include "device/hooks/hooks.h"
#include "device/modules/variables.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

// Held by whatever places code and variables, from before the driver's call until it is recorded:
// a replay repeats the calls in the recorded order, and what they place must lie where it lay.
Mutex placing{kPlacingLock};

constexpr uint64_t kImageLimit = 4ull << 30;

Image* keep(const void* code, const char* what) {
  ImageView view;
  Image* image = nullptr;
  if (measure_image(code, kImageLimit, &view)) image = registry().keep_image(view);
  if (!image) registry().refuse(what);
  return image;
}

CUresult note_module(CUresult result, CUmodule* module, const void* image, unsigned count,
                     const CUjit_option* options, void** values) {
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kModule, *module), context = current_context_name();
  MutexLock guard(registry().lock);
  Image* kept = keep(image, "cuModuleLoad*: an image whose format is not known");
  auto* object = registry().add<ModuleObject>(ObjectType::kModule, name, context);
  if (!object) return result;
  object->image = kept;
  keep_options(&object->options, count, options, values);
  return result;
}

FunctionObject* function_object(uint64_t name) {
  return registry().find<FunctionObject>(ObjectType::kFunction, name);
}

void note_function(CUfunction function, uint64_t module, const char* symbol) {
  uint64_t name = new_name(Kind::kFunction, function);
  MutexLock guard(registry().lock);
  if (auto* known = function_object(name)) {
    if (known->module == module) return;
    registry().remove(known);  // of a module that ended this moment
  }
  ModuleObject* owner = registry().find<ModuleObject>(ObjectType::kModule, module);
  auto* object = registry().add<FunctionObject>(ObjectType::kFunction, name,
                                                owner ? owner->context : current_context_name());
  if (!object) return;
  object->module = module;
  object->symbol = keep_text(symbol);
}

void note_kernel(CUkernel kernel, uint64_t library, const char* symbol) {
  uint64_t name = new_name(Kind::kKernel, kernel);
  if (name != bits(kernel)) bind(Kind::kFunction, name, bits(kernel));  // it may stand for one
  MutexLock guard(registry().lock);
  if (auto* known = registry().find<KernelObject>(ObjectType::kKernel, name)) {
    if (known->library == library) return;
    registry().remove(known);  // of a library that ended this moment
  }
  auto* object = registry().add<KernelObject>(ObjectType::kKernel, name, 0);
  if (!object) return;
  object->library = library;
  object->symbol = keep_text(symbol);
}

void set(Vector<Setting>* settings, int key, int value, int device) {
  for (Setting& s : *settings) {
    if (s.key != key || s.device != device) continue;
    s.value = value;
    return;
  }
  settings->push({key, value, device});
}

void note_setting(CUfunction function, int key, int value) {
  MutexLock guard(registry().lock);
  if (auto* f = function_object(name_from(Kind::kFunction, function))) {
    set(&f->settings, key, value, 0);
    return;
  }
  // A CUkernel may stand for a CUfunction.
  if (auto* k =
          registry().find<KernelObject>(ObjectType::kKernel, name_from(Kind::kKernel, function)))
    set(&k->settings, key, value, -1);
}

CUresult note_library(CUresult result, CUlibrary* library, const void* code, unsigned jit_count,
                      const CUjit_option* jit_options, void** jit_values, unsigned count,
                      const CUlibraryOption* options, void** values) {
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kLibrary, *library);
  MutexLock guard(registry().lock);
  Image* kept = keep(code, "cuLibraryLoad*: an image whose format is not known");
  auto* object = registry().add<LibraryObject>(ObjectType::kLibrary, name, 0);
  if (!object) return result;
  object->image = kept;
  keep_options(&object->options, jit_count, jit_options, jit_values);
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
      registry().refuse("cuLibraryLoadData: a table of host functions is bound to a library");
    else  // our copy of the image is always preserved
      object->library_options.push({static_cast<int>(options[i]), values ? bits(values[i]) : 0});
  }
  return result;
}

// Where a setting of a kernel for one device makes the library's module.
uint64_t context_on(CUdevice device) {
  const uint64_t current = current_context_name();
  MutexLock guard(registry().lock);
  const ContextObject* c = registry().context(current);
  if (c && c->device == device) return current;
  c = registry().primary_of(device);
  return c && c->alive ? c->name : 0;
}

// The library or module that a kernel or function is of, when its first use in the context is not
// recorded yet; null: there is nothing to record.
Object* owner_of_unused(uint64_t name, uint64_t context, uint64_t* library, bool* is_kernel) {
  MutexLock guard(registry().lock);
  if (auto* k = registry().find<KernelObject>(ObjectType::kKernel, name)) {
    *is_kernel = true;
    *library = k->library;
    for (uint64_t used : k->used_in)
      if (used == context) return nullptr;
    return registry().find<LibraryObject>(ObjectType::kLibrary, k->library);
  }
  *is_kernel = false;
  auto* f = function_object(name);
  if (!f || f->used) return nullptr;
  if (f->kernel) {
    auto* k = registry().find<KernelObject>(ObjectType::kKernel, f->kernel);
    *library = k ? k->library : 0;
  } else {
    auto* m = registry().find<ModuleObject>(ObjectType::kModule, f->module);
    *library = m ? m->library : 0;
    if (m && m->image) return m;
  }
  return registry().find<LibraryObject>(ObjectType::kLibrary, *library);
}

void note_use(Object* owner, uint64_t name, uint64_t context, bool is_kernel) {
  MutexLock guard(registry().lock);
  auto* use = registry().add<UseObject>(ObjectType::kUse, 0, context);
  if (!use) return;
  use->owner = owner;
  (is_kernel ? use->kernel : use->function) = name;
  bool kept = true;
  if (auto* k = registry().find<KernelObject>(ObjectType::kKernel, name); k && is_kernel)
    kept = k->used_in.push(context);
  if (auto* f = function_object(name); f && !is_kernel) f->used = true;
  if (!kept) registry().refuse("no memory to record the use of a kernel");
}

}  // namespace

// Drivers load code at the first use (CUDA_MODULE_LOADING). Here it is loaded before that use,
// while `placing` is held, so that the order is known; not within a capture, where a load may be
// forbidden.
CUresult load_code(CUfunction function, CUkernel kernel) {
  CUresult result = kernel ? real().cuKernelGetFunction(&function, kernel) : CUresult{CUDA_SUCCESS};
  int registers;
  if (result != CUDA_SUCCESS) return result;
  if (present(real().cuFuncLoad)) return real().cuFuncLoad(function);
  return real().cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
}

}  // namespace device

using namespace device;

void first_use(CUfunction function) {
  const uint64_t name = bits(function), context = current_context_name();
  if (!context) return;
  MutexLock placed(placing);
  uint64_t library = 0;
  bool is_kernel;
  Object* owner = owner_of_unused(name, context, &library, &is_kernel);
  if (!owner) return;
  if (!captures_active)
    load_code(is_kernel ? nullptr : real_of<CUfunction>(Kind::kFunction, name),
              is_kernel ? real_of<CUkernel>(Kind::kKernel, name) : nullptr);
  if (library) note_instance(library, context);
  note_use(owner, name, context, is_kernel);
}

CUresult hook_cuModuleLoad(CUmodule* module, const char* fname) {
  MutexLock placed(placing);
  CUresult result = real().cuModuleLoad(module, fname);
  if (result != CUDA_SUCCESS) return result;
  FileBytes file(fname);
  return note_module(result, module, file.bytes, 0, nullptr, nullptr);
}

CUresult hook_cuModuleLoadData(CUmodule* module, const void* image) {
  MutexLock placed(placing);
  return note_module(real().cuModuleLoadData(module, image), module, image, 0, nullptr, nullptr);
}

CUresult hook_cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                 CUjit_option* options, void** optionValues) {
  MutexLock placed(placing);
  // Outputs are written over their inputs: nothing that lasts is among them.
  return note_module(real().cuModuleLoadDataEx(module, image, numOptions, options, optionValues),
                     module, image, numOptions, options, optionValues);
}

CUresult hook_cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  MutexLock placed(placing);
  return note_module(real().cuModuleLoadFatBinary(module, fatCubin), module, fatCubin, 0, nullptr,
                     nullptr);
}

CUresult hook_cuModuleUnload(CUmodule hmod) {
  MutexLock placed(placing);
  uint64_t name = name_from(Kind::kModule, hmod);
  CUresult result = real().cuModuleUnload(hmod);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (auto* object = registry().find<ModuleObject>(ObjectType::kModule, name))
    registry().unload(object);
  return result;
}

CUresult hook_cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  CUresult result = real().cuModuleGetFunction(hfunc, hmod, name);
  if (result == CUDA_SUCCESS) note_function(*hfunc, name_from(Kind::kModule, hmod), name);
  return result;
}

CUresult hook_cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                         CUmodule mod) {
  CUresult result = real().cuModuleEnumerateFunctions(functions, numFunctions, mod);
  if (result != CUDA_SUCCESS) return result;
  unsigned present = 0;
  real().cuModuleGetFunctionCount(&present, mod);
  for (unsigned i = 0; i < numFunctions && i < present; ++i) {
    const char* symbol = nullptr;
    if (functions[i] && real().cuFuncGetName(&symbol, functions[i]) == CUDA_SUCCESS && symbol)
      note_function(functions[i], name_from(Kind::kModule, mod), symbol);
  }
  return result;
}

// An address that fits into the first API's 32 bits, or an error; it is kept as any other.
CUresult hook_cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule hmod,
                                const char* name) {
  CUresult result = real().cuModuleGetGlobal(dptr, bytes, hmod, name);
  CUdeviceptr address;
  size_t size;
  if (result == CUDA_SUCCESS) hook_cuModuleGetGlobal_v2(&address, &size, hmod, name);
  return result;
}

CUresult hook_cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                   const char* name) {
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result = real().cuModuleGetGlobal_v2(&address, &size, hmod, name);
  if (result != CUDA_SUCCESS) return result;
  if (dptr) *dptr = address;
  if (bytes) *bytes = size;
  note_module_global(name_from(Kind::kModule, hmod), name, address, size);
  return result;
}

CUresult hook_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  CUresult result = real().cuFuncSetAttribute(hfunc, attrib, value);
  if (result == CUDA_SUCCESS) note_setting(hfunc, attrib, value);
  return result;
}

CUresult hook_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  CUresult result = real().cuFuncSetCacheConfig(hfunc, config);
  if (result == CUDA_SUCCESS) note_setting(hfunc, kCacheConfig, config);
  return result;
}

CUresult hook_cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  CUresult result = real().cuFuncGetModule(hmod, hfunc);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kModule, *hmod), context = current_context_name();
  MutexLock guard(registry().lock);
  if (registry().find<ModuleObject>(ObjectType::kModule, name)) return result;
  auto* function = function_object(name_from(Kind::kFunction, hfunc));
  auto* kernel =
      function ? registry().find<KernelObject>(ObjectType::kKernel, function->kernel) : nullptr;
  if (!kernel) return result;
  auto* object = registry().add<ModuleObject>(ObjectType::kModule, name, context);
  if (object) object->library = kernel->library;
  return result;
}

CUresult hook_cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                void** jitOptionsValues, unsigned int numJitOptions,
                                CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                unsigned int numLibraryOptions) {
  MutexLock placed(placing);
  CUresult result =
      real().cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
                               libraryOptions, libraryOptionValues, numLibraryOptions);
  return note_library(result, library, code, numJitOptions, jitOptions, jitOptionsValues,
                      numLibraryOptions, libraryOptions, libraryOptionValues);
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                    CUjit_option* jitOptions, void** jitOptionsValues,
                                    unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                    void** libraryOptionValues, unsigned int numLibraryOptions) {
  MutexLock placed(placing);
  CUresult result =
      real().cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues, numJitOptions,
                                   libraryOptions, libraryOptionValues, numLibraryOptions);
  if (result != CUDA_SUCCESS) return result;
  FileBytes file(fileName);
  return note_library(result, library, file.bytes, numJitOptions, jitOptions, jitOptionsValues,
                      numLibraryOptions, libraryOptions, libraryOptionValues);
}

CUresult hook_cuLibraryUnload(CUlibrary library) {
  MutexLock placed(placing);
  uint64_t name = name_from(Kind::kLibrary, library);
  CUresult result = real().cuLibraryUnload(library);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (auto* object = registry().find<LibraryObject>(ObjectType::kLibrary, name))
    registry().unload(object);
  return result;
}

CUresult hook_cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  CUresult result = real().cuLibraryGetKernel(pKernel, library, name);
  if (result == CUDA_SUCCESS) note_kernel(*pKernel, name_from(Kind::kLibrary, library), name);
  return result;
}

CUresult hook_cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  CUresult result = real().cuLibraryEnumerateKernels(kernels, numKernels, lib);
  if (result != CUDA_SUCCESS) return result;
  unsigned present = 0;
  real().cuLibraryGetKernelCount(&present, lib);
  for (unsigned i = 0; i < numKernels && i < present; ++i) {
    const char* symbol = nullptr;
    if (kernels[i] && real().cuKernelGetName(&symbol, kernels[i]) == CUDA_SUCCESS && symbol)
      note_kernel(kernels[i], name_from(Kind::kLibrary, lib), symbol);
  }
  return result;
}

CUresult hook_cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  MutexLock placed(placing);
  CUresult result = real().cuLibraryGetModule(pMod, library);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kModule, *pMod), context = current_context_name();
  uint64_t library_name = name_from(Kind::kLibrary, library);
  note_instance(library_name, context);
  MutexLock guard(registry().lock);
  if (registry().find<ModuleObject>(ObjectType::kModule, name)) return result;
  auto* object = registry().add<ModuleObject>(ObjectType::kModule, name, context);
  if (object) object->library = library_name;
  return result;
}

static CUresult library_variable(decltype(&cuLibraryGetGlobal) call, bool managed,
                                 CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                 const char* name) {
  MutexLock placed(placing);
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result = call(&address, &size, library, name);
  if (result != CUDA_SUCCESS) return result;
  if (dptr) *dptr = address;
  if (bytes) *bytes = size;
  uint64_t context = current_context_name(), library_name = name_from(Kind::kLibrary, library);
  note_instance(library_name, context);
  note_library_global(library_name, context, name, address, size, managed);
  return result;
}

CUresult hook_cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                 const char* name) {
  return library_variable(real().cuLibraryGetGlobal, false, dptr, bytes, library, name);
}
CUresult hook_cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                  const char* name) {
  return library_variable(real().cuLibraryGetManaged, true, dptr, bytes, library, name);
}

CUresult hook_cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  MutexLock placed(placing);
  CUresult result = real().cuKernelGetFunction(pFunc, kernel);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kFunction, *pFunc), context = current_context_name();
  uint64_t kernel_name = name_from(Kind::kKernel, kernel), library = 0;
  {
    MutexLock guard(registry().lock);
    if (auto* k = registry().find<KernelObject>(ObjectType::kKernel, kernel_name))
      library = k->library;
    if (function_object(name)) return result;
  }
  note_instance(library, context);
  MutexLock guard(registry().lock);
  auto* object = registry().add<FunctionObject>(ObjectType::kFunction, name, context);
  if (object) object->kernel = kernel_name;
  return result;
}

CUresult hook_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                   CUdevice dev) {
  MutexLock placed(placing);
  CUresult result = real().cuKernelSetAttribute(attrib, val, kernel, dev);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t context = context_on(dev);
  uint64_t library = 0;
  {
    MutexLock guard(registry().lock);
    auto* k = registry().find<KernelObject>(ObjectType::kKernel, name_from(Kind::kKernel, kernel));
    if (!k) return result;
    set(&k->settings, attrib, val, dev);
    library = k->library;
  }
  note_instance(library, context);
  return result;
}

CUresult hook_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  CUresult result = real().cuKernelSetCacheConfig(kernel, config, dev);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (auto* k =
          registry().find<KernelObject>(ObjectType::kKernel, name_from(Kind::kKernel, kernel)))
    set(&k->settings, kCacheConfig, config, dev);
  return result;
}

// The driver's text lies in its copy of the code, which does not outlive a restore. Ours does.
static const char* own_text(const char* symbol, const char* kept) {
  return kept && equal(symbol, kept) ? kept : symbol;
}

CUresult hook_cuKernelGetName(const char** name, CUkernel hfunc) {
  CUresult result = real().cuKernelGetName(name, hfunc);
  if (result != CUDA_SUCCESS || !*name) return result;
  MutexLock guard(registry().lock);
  if (auto* k = registry().find<KernelObject>(ObjectType::kKernel, name_from(Kind::kKernel, hfunc)))
    *name = own_text(*name, k->symbol);
  return result;
}

CUresult hook_cuFuncGetName(const char** name, CUfunction hfunc) {
  CUresult result = real().cuFuncGetName(name, hfunc);
  if (result != CUDA_SUCCESS || !*name) return result;
  MutexLock guard(registry().lock);
  const uint64_t known = name_from(Kind::kFunction, hfunc);
  const FunctionObject* f = function_object(known);
  const uint64_t kernel = f && f->kernel ? f->kernel : known;
  const auto* k = registry().find<KernelObject>(ObjectType::kKernel, kernel);
  *name = own_text(*name, f && f->symbol ? f->symbol : k ? k->symbol : nullptr);
  return result;
}

CUresult hook_cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  return real().cuKernelGetLibrary(pLib, kernel);
}

}  // namespace gpuckpt
