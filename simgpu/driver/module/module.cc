#include "driver/module/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/memory/memory.h"
#include "driver/module/jit_options.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

uint64_t place_after(uint64_t at, const ptx::VariableInfo* v) {
  return round_up(at, v->align > 256 ? v->align : 256);
}

// Space for the plain or for the managed variables.
uint64_t data_bytes(const ptx::Module* code, bool managed) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < ptx::variable_count(code); ++i) {
    const ptx::VariableInfo* v = ptx::variable(code, i);
    if (!v->external && v->managed == managed) at = place_after(at, v) + v->size;
  }
  return round_up(at, kPage);
}

// "75" of ".target sm_75"; 0 when there is none.
int target_of(const char* text) {
  const char* at = strstr(text, ".target");
  const char* sm = at ? strstr(at, "sm_") : nullptr;
  return sm ? atoi(sm + 3) : 0;
}

}  // namespace

CUresult Module::measure(const Image& image, int sm, uint64_t* bytes, ptx::Module** code, char* log,
                         size_t log_bytes) {
  device_ioctl();
  ptx::CompileOptions options{static_cast<uint32_t>(sm)};
  *code = ptx::compile(image.text, image.length, options, log, log_bytes);
  if (!*code) return CUDA_ERROR_INVALID_PTX;
  *bytes = data_bytes(*code, false) + data_bytes(*code, true) +
           round_up(ptx::code_bytes(*code) + 1, kPage);
  return CUDA_SUCCESS;
}

CUresult Module::load(Context& c, const Image& image, uint64_t offset, Ref<Module>* out, char* log,
                      size_t log_bytes) {
  auto m = Ref<Module>::adopt(new Module);
  uint64_t bytes;
  CUresult r = measure(image, c.device->sm(), &bytes, &m->code, log, log_bytes);
  if (r != CUDA_SUCCESS) return r;
  if (offset == ~0ull) {
    offset = c.module_space.place(bytes);
    if (offset == ~0ull) return CUDA_ERROR_OUT_OF_MEMORY;
    m->own_place_ = true;
  }
  m->offset_ = offset;
  m->target = target_of(image.text);
  r = m->place(c, offset);
  if (r != CUDA_SUCCESS) {
    if (m->own_place_) c.module_space.remove(offset);
    return r;
  }
  {
    Lock lock(c.mutex);
    c.modules.push_back(m);
  }
  *out = std::move(m);
  return CUDA_SUCCESS;
}

// Layout: variables, managed variables, code.
CUresult Module::place(Context& c, uint64_t offset) {
  context = &c;
  context_id = c.id;
  base_ = c.module_base + offset;
  data_bytes_ = data_bytes(code, false);
  managed_bytes_ = data_bytes(code, true);
  if (data_bytes_ != 0) {
    Ref<Backing> backing = Backing::create(c.device, data_bytes_, false);
    if (!backing) return CUDA_ERROR_OUT_OF_MEMORY;
    Mapping map;
    map.begin = base_;
    map.end = base_ + data_bytes_;
    map.host = backing->host;
    map.backing = std::move(backing);
    map.device = c.device->ordinal;
    map.readable = map.writable = 1u << c.device->ordinal;
    map.peer = true;
    state()->memory.map(std::move(map));
  }
  if (managed_bytes_ != 0) {  // the host reaches these at their own address
    uint64_t at = base_ + data_bytes_;
    void* p = mmap(reinterpret_cast<void*>(at), managed_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Mapping map;
    map.begin = at;
    map.end = at + managed_bytes_;
    map.host = static_cast<uint8_t*>(p);
    state()->memory.map(std::move(map));
  }
  place_variables(c, false, base_);
  place_variables(c, true, base_ + data_bytes_);
  ptx::finish(code, base_ + data_bytes_ + managed_bytes_, c.memory);
  for (uint32_t i = 0; i < ptx::kernel_count(code); ++i) {
    functions.push_back(Ref<Function>::adopt(new Function(this, i, ptx::kernel(code, i))));
    state()->handles.add(functions.back().get());
  }
  loaded_ = true;
  return CUDA_SUCCESS;
}

void Module::place_variables(Context& c, bool managed, uint64_t at) {
  for (uint32_t i = 0; i < ptx::variable_count(code); ++i) {
    const ptx::VariableInfo* v = ptx::variable(code, i);
    if (v->external || v->managed != managed) continue;
    at = place_after(at, v);
    ptx::bind(code, i, at);
    if (v->opaque != ptx::Opaque::kNo) {
      add_reference(*v, at);
      at += v->size;
      continue;
    }
    variables.push_back({v, at});
    if (v->size != 0) {
      Allocation a;
      a.type = managed ? MemoryType::kManaged : MemoryType::kModule;
      a.variable = true;
      a.base = a.block = at;
      a.size = a.block_bytes = v->size;
      a.id = fresh_id();
      a.device = c.device->ordinal;
      a.context = c.id;
      a.context_handle = c.handle();
      state()->memory.add(a);
    }
    at += v->size;
  }
}

// Samplers (.samplerref) are known to the engine alone: no call of the driver names them.
void Module::add_reference(const ptx::VariableInfo& v, uint64_t at) {
  if (v.opaque == ptx::Opaque::kSurface) {
    auto s = Ref<SurfaceReference>::adopt(new SurfaceReference);
    s->name = v.name;
    s->address = at;
    state()->handles.add(s.get());
    surfaces.push_back(std::move(s));
  } else if (v.opaque == ptx::Opaque::kTexture) {
    auto t = Ref<TextureReference>::adopt(new TextureReference);
    t->name = v.name;
    t->address = at;
    for (int d = 0; d < 3; ++d)
      t->texture.addressMode[d] = v.init.address[d] < 0
                                      ? CU_TR_ADDRESS_MODE_CLAMP
                                      : static_cast<CUaddress_mode>(v.init.address[d]);
    if (v.init.filter > 0) t->texture.filterMode = CU_TR_FILTER_MODE_LINEAR;
    if (v.init.normalized > 0) t->texture.flags = CU_TRSF_NORMALIZED_COORDINATES;
    state()->handles.add(t.get());
    textures.push_back(std::move(t));
  }
}

void Module::unload() {
  if (!loaded_) return;
  loaded_ = false;
  State* s = state();
  for (Ref<TextureReference>& t : textures) s->handles.remove(t.get());
  for (Ref<SurfaceReference>& f : surfaces) s->handles.remove(f.get());
  for (Ref<Function>& f : functions) s->handles.remove(f.get());
  if (handle_published) s->handles.remove(this);
  for (const Variable& v : variables) s->memory.remove(v.address, nullptr);
  if (data_bytes_ != 0) s->memory.unmap(base_, base_ + data_bytes_);
  if (managed_bytes_ != 0) {
    uint64_t at = base_ + data_bytes_;
    s->memory.unmap(at, at + managed_bytes_);
    // Reserved again.
    mmap(reinterpret_cast<void*>(at), managed_bytes_, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  if (own_place_) context->module_space.remove(offset_);
  if (library) library->forget(this);
}

Module::~Module() {
  if (code) ptx::destroy(code);
}

Function* Module::function(const char* name) const {
  for (const Ref<Function>& f : functions)
    if (strcmp(f->info->name, name) == 0) return f.get();
  return nullptr;
}

const Variable* Module::variable(const char* name) const {
  for (const Variable& v : variables)
    if (strcmp(v.info->name, name) == 0) return &v;
  return nullptr;
}

Library::~Library() {
  if (code) ptx::destroy(code);
}

CUresult Library::instance(Context& c, Ref<Module>* out) {
  Lock lock(mutex);
  for (Ref<Module>& m : instances) {
    if (m->context_id == c.id) {
      *out = m;
      return CUDA_SUCCESS;
    }
  }
  char log[256] = "";
  Ref<Module> m;
  CUresult r = Module::load(c, *image, offset, &m, log, sizeof log);
  if (r != CUDA_SUCCESS) return r;
  m->library = this;
  m->handle_published = true;
  state()->handles.add(m.get());
  instances.push_back(m);
  *out = std::move(m);
  return CUDA_SUCCESS;
}

void Library::forget(Module* m) {
  Ref<Module> gone;
  Lock lock(mutex);
  for (size_t i = 0; i < instances.size(); ++i) {
    if (instances[i].get() == m) {
      gone = instances[i];
      instances.erase(instances.begin() + static_cast<long>(i));
      break;
    }
  }
  lock.unlock();
}

CUresult Library::function(Context& c, uint32_t index, Ref<Function>* out) {
  Ref<Module> m;
  if (CUresult r = instance(c, &m); r != CUDA_SUCCESS) return r;
  *out = m->functions[index];
  return CUDA_SUCCESS;
}

CUresult Function::attribute(CUfunction_attribute id, int* value) const {
  switch (static_cast<int>(id)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(info->max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info->static_shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:  // all of its module: one bank for all functions
      *value = 0;
      for (uint32_t k = 0; k < ptx::variable_count(module->code); ++k)
        if (const ptx::VariableInfo* v = ptx::variable(module->code, k); v->constant)
          *value += static_cast<int>(v->size);
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info->local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(info->registers);
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = module->target;
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = module->context->device->sm();
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      int most = max_dynamic_shared.load();
      int limit = 48 * 1024 - static_cast<int>(info->static_shared_bytes);
      *value = most == 48 * 1024 ? limit : most;
      break;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = carveout.load();
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = cluster[id - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH].load();
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = non_portable_cluster.load();
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Function::set_attribute(CUfunction_attribute id, int value) {
  switch (static_cast<int>(id)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      int most =
          module->context->device->shared_optin() - static_cast<int>(info->static_shared_bytes);
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      max_dynamic_shared.store(value);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      carveout.store(value);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (value < 0) return CUDA_ERROR_INVALID_VALUE;
      cluster[id - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH].store(value);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      non_portable_cluster.store(value);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult function_of(CUfunction handle, Context& c, Ref<Function>* out) {
  State* s = state();
  *out = s->handles.get<Function>(handle);
  if (*out) return CUDA_SUCCESS;
  Ref<Kernel> k = s->handles.get<Kernel>(handle);
  if (!k) return CUDA_ERROR_INVALID_HANDLE;
  return k->library->function(c, k->index, out);
}

namespace {

CUresult load_module(CUmodule* out, const Image& image, char* log, size_t log_bytes) {
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  Ref<Module> m;
  CUresult r = Module::load(*c, image, ~0ull, &m, log, log_bytes);
  if (r != CUDA_SUCCESS) return r;
  m->handle_published = true;
  state()->handles.add(m.get());
  *out = reinterpret_cast<CUmodule>(m.get());
  return CUDA_SUCCESS;
}

int sm() { return state()->options.sm; }

CUresult load_data(CUmodule* out, const void* data, JitOptions options) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  char log[2048] = "";
  Ref<Image> image;
  CUresult r = read_image(data, sm(), &image, log, sizeof log);
  if (r == CUDA_SUCCESS) r = load_module(out, *image, log, sizeof log);
  options.finish(r, log);
  return r;
}

CUresult load_library(CUlibrary* out, Ref<Image> image, char* log, size_t log_bytes) {
  uint64_t bytes;
  auto l = Ref<Library>::adopt(new Library(image));
  CUresult r = Module::measure(*image, sm(), &bytes, &l->code, log, log_bytes);
  if (r != CUDA_SUCCESS) return r;
  // A managed variable has one address in all contexts. Other libraries get their place in a
  // context with the first use there, as measured on driver 580.159.
  if (data_bytes(l->code, true) != 0) {
    l->offset = state()->libraries.place(bytes);
    if (l->offset == ~0ull) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (uint32_t i = 0; i < ptx::kernel_count(l->code); ++i) {
    l->kernels.push_back(Ref<Kernel>::adopt(new Kernel(l.get(), i)));
    state()->handles.add(l->kernels.back().get());
  }
  l->retain();  // the handle's
  state()->handles.add(l.get());
  *out = reinterpret_cast<CUlibrary>(l.get());
  return CUDA_SUCCESS;
}

template <class T>
CUresult get(const void* handle, Ref<T>* out) {
  *out = state()->handles.get<T>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult param_info(const ptx::KernelInfo* k, size_t i, size_t* offset, size_t* size) {
  if (!offset || i >= k->param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = k->params[i].offset;
  if (size) *size = k->params[i].size;
  return CUDA_SUCCESS;
}

CUresult variable_of(const Module& m, const char* name, CUdeviceptr* address, size_t* bytes) {
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  const Variable* v = m.variable(name);
  if (!v) return CUDA_ERROR_NOT_FOUND;
  if (address) *address = v->address;
  if (bytes) *bytes = v->info->size;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuModuleLoadData(CUmodule* out, const void* data) {
  ENTER(cuModuleLoadData);
  return load_data(out, data, JitOptions(0, nullptr, nullptr));
}

SIMGPU_API cuModuleLoadDataEx(CUmodule* out, const void* data, unsigned count,
                              CUjit_option* options, void** values) {
  ENTER(cuModuleLoadDataEx);
  return load_data(out, data, JitOptions(count, options, values));
}

SIMGPU_API cuModuleLoadFatBinary(CUmodule* out, const void* data) {
  ENTER(cuModuleLoadFatBinary);
  return load_data(out, data, JitOptions(0, nullptr, nullptr));
}

SIMGPU_API cuModuleLoad(CUmodule* out, const char* path) {
  ENTER(cuModuleLoad);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  char log[2048] = "";
  Ref<Image> image;
  CUresult r = read_image_file(path, sm(), &image, log, sizeof log);
  if (r == CUDA_SUCCESS) r = load_module(out, *image, log, sizeof log);
  JitOptions(0, nullptr, nullptr).finish(r, log);
  return r;
}

SIMGPU_API cuModuleUnload(CUmodule handle) {
  ENTER(cuModuleUnload);
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  if (m->library) return CUDA_ERROR_INVALID_HANDLE;  // cuLibraryUnload's
  Ref<Context> c(m->context);
  CUresult r = c->synchronize();
  {
    Lock lock(c->mutex);
    for (size_t i = 0; i < c->modules.size(); ++i) {
      if (c->modules[i].get() == m.get()) {
        c->modules.erase(c->modules.begin() + static_cast<long>(i));
        break;
      }
    }
  }
  m->unload();
  return r;
}

SIMGPU_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  ENTER(cuModuleGetLoadingMode);
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  const char* asked = getenv("CUDA_MODULE_LOADING");
  *mode = asked && strcmp(asked, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SIMGPU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  ENTER(cuModuleGetFunction);
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  Function* f = m->function(name);
  if (!f) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(f);
  return CUDA_SUCCESS;
}

SIMGPU_API cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  ENTER(cuModuleGetFunctionCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  *count = static_cast<unsigned>(m->functions.size());
  return CUDA_SUCCESS;
}

SIMGPU_API cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule handle) {
  ENTER(cuModuleEnumerateFunctions);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  for (unsigned i = 0; i < count && i < m->functions.size(); ++i)
    out[i] = reinterpret_cast<CUfunction>(m->functions[i].get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                                const char* name) {
  ENTER(cuModuleGetGlobal_v2);
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  return variable_of(*m, name, address, bytes);
}

template <class T>
static CUresult reference_named(const std::vector<Ref<T>>& list, const char* name, T** out) {
  for (const Ref<T>& r : list)
    if (strcmp(r->name, name) == 0) {
      *out = r.get();
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

SIMGPU_API cuModuleGetTexRef(CUtexref* out, CUmodule handle, const char* name) {
  ENTER(cuModuleGetTexRef);
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  return reference_named(m->textures, name, reinterpret_cast<TextureReference**>(out));
}

SIMGPU_API cuModuleGetSurfRef(CUsurfref* out, CUmodule handle, const char* name) {
  ENTER(cuModuleGetSurfRef);
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  Ref<Module> m;
  if (CUresult r = get(handle, &m); r != CUDA_SUCCESS) return r;
  return reference_named(m->surfaces, name, reinterpret_cast<SurfaceReference**>(out));
}

SIMGPU_API cuLibraryLoadData(CUlibrary* out, const void* data, CUjit_option* options, void** values,
                             unsigned count, CUlibraryOption*, void**, unsigned) {
  ENTER(cuLibraryLoadData);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  char log[2048] = "";
  Ref<Image> image;
  CUresult r = read_image(data, sm(), &image, log, sizeof log);
  if (r == CUDA_SUCCESS) r = load_library(out, image, log, sizeof log);
  JitOptions(count, options, values).finish(r, log);
  return r;
}

SIMGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options,
                                 void** values, unsigned count, CUlibraryOption*, void**,
                                 unsigned) {
  ENTER(cuLibraryLoadFromFile);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  char log[2048] = "";
  Ref<Image> image;
  CUresult r = read_image_file(path, sm(), &image, log, sizeof log);
  if (r == CUDA_SUCCESS) r = load_library(out, image, log, sizeof log);
  JitOptions(count, options, values).finish(r, log);
  return r;
}

SIMGPU_API cuLibraryUnload(CUlibrary handle) {
  ENTER(cuLibraryUnload);
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  if (!state()->handles.remove(l.get())) return CUDA_ERROR_INVALID_HANDLE;
  for (Ref<Kernel>& k : l->kernels) state()->handles.remove(k.get());
  std::vector<Ref<Module>> instances;
  {
    Lock lock(l->mutex);
    instances = l->instances;
  }
  for (Ref<Module>& m : instances) {
    Ref<Context> c(m->context);
    c->synchronize();
    {
      Lock lock(c->mutex);
      for (size_t i = 0; i < c->modules.size(); ++i) {
        if (c->modules[i].get() == m.get()) {
          c->modules.erase(c->modules.begin() + static_cast<long>(i));
          break;
        }
      }
    }
    m->unload();
  }
  if (l->offset != ~0ull) state()->libraries.remove(l->offset);
  l->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  ENTER(cuLibraryGetKernel);
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  for (Ref<Kernel>& k : l->kernels) {
    if (strcmp(ptx::kernel(l->code, k->index)->name, name) != 0) continue;
    *out = reinterpret_cast<CUkernel>(k.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SIMGPU_API cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  ENTER(cuLibraryGetKernelCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  *count = static_cast<unsigned>(l->kernels.size());
  return CUDA_SUCCESS;
}

SIMGPU_API cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary handle) {
  ENTER(cuLibraryEnumerateKernels);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  for (unsigned i = 0; i < count && i < l->kernels.size(); ++i)
    out[i] = reinterpret_cast<CUkernel>(l->kernels[i].get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  ENTER(cuLibraryGetModule);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  CURRENT(c);
  Ref<Module> m;
  if (CUresult r = l->instance(*c, &m); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUmodule>(m.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                              const char* name) {
  ENTER(cuLibraryGetGlobal);
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  CURRENT(c);
  Ref<Module> m;
  if (CUresult r = l->instance(*c, &m); r != CUDA_SUCCESS) return r;
  return variable_of(*m, name, address, bytes);
}

SIMGPU_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                               const char* name) {
  ENTER(cuLibraryGetManaged);
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  CURRENT(c);
  Ref<Module> m;
  if (CUresult r = l->instance(*c, &m); r != CUDA_SUCCESS) return r;
  const Variable* v = name ? m->variable(name) : nullptr;
  if (!v || !v->info->managed) return CUDA_ERROR_NOT_FOUND;
  return variable_of(*m, name, address, bytes);
}

SIMGPU_API cuLibraryGetUnifiedFunction(void** out, CUlibrary handle, const char*) {
  ENTER(cuLibraryGetUnifiedFunction);
  Ref<Library> l;
  if (CUresult r = get(handle, &l); r != CUDA_SUCCESS) return r;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_FOUND;  // as the device attribute says
}

SIMGPU_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  ENTER(cuKernelGetFunction);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Kernel> k;
  if (CUresult r = get(handle, &k); r != CUDA_SUCCESS) return r;
  CURRENT(c);
  Ref<Function> f;
  if (CUresult r = k->library->function(*c, k->index, &f); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUfunction>(f.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  ENTER(cuKernelGetLibrary);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Kernel> k;
  if (CUresult r = get(handle, &k); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUlibrary>(k->library);
  return CUDA_SUCCESS;
}

SIMGPU_API cuKernelGetName(const char** out, CUkernel handle) {
  ENTER(cuKernelGetName);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Kernel> k;
  if (CUresult r = get(handle, &k); r != CUDA_SUCCESS) return r;
  *out = ptx::kernel(k->library->code, k->index)->name;
  return CUDA_SUCCESS;
}

SIMGPU_API cuKernelGetParamInfo(CUkernel handle, size_t i, size_t* offset, size_t* size) {
  ENTER(cuKernelGetParamInfo);
  Ref<Kernel> k;
  if (CUresult r = get(handle, &k); r != CUDA_SUCCESS) return r;
  return param_info(ptx::kernel(k->library->code, k->index), i, offset, size);
}

namespace {
// A kernel's function on a device: in its primary or in the current context.
CUresult function_on(CUkernel handle, CUdevice device, Ref<Function>* out) {
  Ref<Kernel> k;
  if (CUresult r = get(handle, &k); r != CUDA_SUCCESS) return r;
  Device* d = device_of(device);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  Ref<Context> c;
  if (current(&c) != CUDA_SUCCESS || c->device != d) {
    Lock lock(state()->contexts_mutex);
    c = d->primary;
  }
  if (!c || !c->active()) return CUDA_ERROR_INVALID_CONTEXT;
  return k->library->function(*c, k->index, out);
}
}  // namespace

SIMGPU_API cuKernelGetAttribute(int* value, CUfunction_attribute id, CUkernel handle,
                                CUdevice device) {
  ENTER(cuKernelGetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Ref<Function> f;
  if (CUresult r = function_on(handle, device, &f); r != CUDA_SUCCESS) return r;
  return f->attribute(id, value);
}

SIMGPU_API cuKernelSetAttribute(CUfunction_attribute id, int value, CUkernel handle,
                                CUdevice device) {
  ENTER(cuKernelSetAttribute);
  Ref<Function> f;
  if (CUresult r = function_on(handle, device, &f); r != CUDA_SUCCESS) return r;
  return f->set_attribute(id, value);
}

SIMGPU_API cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  ENTER(cuKernelSetCacheConfig);
  if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  Ref<Function> f;
  return function_on(handle, device, &f);
}

#define FUNCTION(f, handle) \
  CURRENT(simgpu_context);  \
  Ref<Function> f;          \
  if (CUresult r = function_of(handle, *simgpu_context, &f); r != CUDA_SUCCESS) return r

SIMGPU_API cuFuncGetAttribute(int* value, CUfunction_attribute id, CUfunction handle) {
  ENTER(cuFuncGetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  FUNCTION(f, handle);
  return f->attribute(id, value);
}

SIMGPU_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute id, int value) {
  ENTER(cuFuncSetAttribute);
  FUNCTION(f, handle);
  return f->set_attribute(id, value);
}

SIMGPU_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  ENTER(cuFuncSetCacheConfig);
  if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  FUNCTION(f, handle);
  return CUDA_SUCCESS;  // a hint
}

SIMGPU_API cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  ENTER(cuFuncSetSharedMemConfig);
  if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  FUNCTION(f, handle);
  return CUDA_SUCCESS;  // a hint that current devices ignore
}

SIMGPU_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
  ENTER(cuFuncGetModule);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  FUNCTION(f, handle);
  *out = reinterpret_cast<CUmodule>(f->module);
  return CUDA_SUCCESS;
}

SIMGPU_API cuFuncGetName(const char** out, CUfunction handle) {
  ENTER(cuFuncGetName);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  FUNCTION(f, handle);
  *out = f->info->name;
  return CUDA_SUCCESS;
}

SIMGPU_API cuFuncGetParamInfo(CUfunction handle, size_t i, size_t* offset, size_t* size) {
  ENTER(cuFuncGetParamInfo);
  FUNCTION(f, handle);
  return param_info(f->info, i, offset, size);
}

SIMGPU_API cuFuncIsLoaded(CUfunctionLoadingState* out, CUfunction handle) {
  ENTER(cuFuncIsLoaded);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  FUNCTION(f, handle);
  *out = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SIMGPU_API cuFuncLoad(CUfunction handle) {
  ENTER(cuFuncLoad);
  FUNCTION(f, handle);
  return CUDA_SUCCESS;
}
