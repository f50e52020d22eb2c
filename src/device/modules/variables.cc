#include "device/modules/variables.h"

#include "device/base/registry.h"
#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

// Room for what it holds, from now on copied when all threads are parked.
void make_managed(Global* g) {
  if (g->managed) return;
  g->managed = true;
  g->contents = static_cast<uint8_t*>(allocate(g->size ? g->size : 1));
  if (!g->contents) registry().refuse("no memory for the contents of a managed variable");
}

// A managed variable of a library is one for all contexts.
void note_global(Vector<Global>* globals, const char* symbol, uint64_t context, uint64_t address,
                 uint64_t size, bool managed) {
  for (Global& g : *globals) {
    if ((g.context != context && !g.managed) || __builtin_strcmp(g.symbol, symbol)) continue;
    if (managed) make_managed(&g);
    return;
  }
  Global fresh = {keep_text(symbol), context, address, size, false, nullptr};
  if (managed) make_managed(&fresh);
  globals->push(fresh);
}

struct Names {
  Vector<char> text;
  Vector<size_t> starts;
  Vector<char> managed;
};
void take_name(void* context, const char* name, size_t length, bool managed) {
  auto* names = static_cast<Names*>(context);
  names->managed.push(managed);
  names->starts.push(names->text.size());
  names->text.append(name, length);
  names->text.push('\0');
}

// Asks the driver where a variable of a library is in the current context.
CUresult find_in_library(uint64_t library, const char* symbol, bool managed, CUdeviceptr* address,
                         size_t* size) {
  auto handle = real_of<CUlibrary>(Kind::kLibrary, library);
  if (managed && real().cuLibraryGetManaged(address, size, handle, symbol) == CUDA_SUCCESS)
    return CUDA_SUCCESS;
  return real().cuLibraryGetGlobal(address, size, handle, symbol);
}

void learn_module(Object* o, const char* symbol, bool managed) {
  CUdeviceptr address = 0;
  size_t size = 0;
  WithContext with(o->context);
  if (with &&
      real().cuModuleGetGlobal_v2(&address, &size, real_of<CUmodule>(Kind::kModule, o->name),
                                  symbol) == CUDA_SUCCESS)
    note_module_global(o->name, symbol, address, size, managed);
}

// Returns false if the next snapshot must ask again.
bool learn_library(Object* o, const char* symbol, bool managed, const Vector<uint64_t>& contexts) {
  bool certain = true;
  for (uint64_t context : contexts) {
    CUdeviceptr address = 0;
    size_t size = 0;
    WithContext with(context);
    CUresult result = with ? find_in_library(o->name, symbol, managed, &address, &size)
                           : CUDA_ERROR_OUT_OF_MEMORY;
    if (with) note_instance(o->name, context);  // the question has made it
    if (result == CUDA_SUCCESS)
      note_library_global(o->name, context, symbol, address, size, managed);
    certain &= result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND;
  }
  return certain;
}

// All variables of its image are known, in all contexts.
bool is_listed(const Object* o, const Vector<uint64_t>& contexts) {
  if (o->type == ObjectType::kModule) return static_cast<const ModuleObject*>(o)->listed;
  for (uint64_t context : contexts) {
    bool known = false;
    for (uint64_t listed : static_cast<const LibraryObject*>(o)->listed_in)
      known |= listed == context;
    if (!known) return false;
  }
  return true;
}

void set_listed(Object* o, const Vector<uint64_t>& contexts) {
  if (o->type == ObjectType::kModule) {
    static_cast<ModuleObject*>(o)->listed = true;
    return;
  }
  auto* library = static_cast<LibraryObject*>(o);
  library->listed_in.clear();
  library->listed_in.append(contexts.data(), contexts.size());
}

template <typename F>
void each_managed(F f) {
  for (Object* o = registry().first(); o; o = o->next) {
    Vector<Global>* globals = o->dead ? nullptr : globals_of(o);
    if (!globals) continue;
    for (Global& g : *globals) {
      ContextObject* context = registry().context(g.context);
      if (g.managed && g.contents && context && context->alive) f(g);
    }
  }
}

}  // namespace

void note_library_global(uint64_t library, uint64_t context, const char* symbol, uint64_t address,
                         uint64_t size, bool managed) {
  MutexLock guard(registry().lock);
  if (auto* l = registry().find<LibraryObject>(ObjectType::kLibrary, library))
    note_global(&l->globals, symbol, context, address, size, managed);
}

void note_module_global(uint64_t module, const char* symbol, uint64_t address, uint64_t size,
                        bool managed) {
  MutexLock guard(registry().lock);
  auto* m = registry().find<ModuleObject>(ObjectType::kModule, module);
  if (!m) return;
  if (m->image) {
    note_global(&m->globals, symbol, m->context, address, size, managed);
  } else if (auto* l = registry().find<LibraryObject>(ObjectType::kLibrary, m->library)) {
    note_global(&l->globals, symbol, m->context, address, size, managed);
  }
}

void note_instance(uint64_t library, uint64_t context) {
  if (!context) return;
  MutexLock guard(registry().lock);
  auto* l = registry().find<LibraryObject>(ObjectType::kLibrary, library);
  if (!l) return;
  for (uint64_t placed : l->placed_in)
    if (placed == context) return;
  auto* object = registry().add<InstanceObject>(ObjectType::kInstance, 0, context);
  if (!object) return;
  object->library = l;
  if (!l->placed_in.push(context)) registry().refuse("no memory to record a library's module");
}

bool learn_globals(DeviceReport* report) {
  Vector<uint64_t> contexts;
  live_contexts(&contexts);
  for (Object* o = registry().first(); o; o = o->next) {
    bool is_module = o->type == ObjectType::kModule, is_library = o->type == ObjectType::kLibrary;
    if ((!is_module && !is_library) || o->dead) continue;
    Image* image =
        is_module ? static_cast<ModuleObject*>(o)->image : static_cast<LibraryObject*>(o)->image;
    const bool ours = is_module && static_cast<ModuleObject*>(o)->ours;
    if (!image || ours || is_listed(o, contexts)) continue;
    Names names;
    if (!list_variables(image->view(), &names, take_name))
      return report->fail(kExitRefused, "a %s image could not be read for the variables it defines",
                          is_module ? "module" : "library");
    bool certain = true;
    for (size_t i = 0; i < names.starts.size(); ++i) {
      const char* symbol = names.text.data() + names.starts[i];
      if (is_module)
        learn_module(o, symbol, names.managed[i]);
      else
        certain &= learn_library(o, symbol, names.managed[i], contexts);
    }
    if (certain) set_listed(o, contexts);
  }
  return true;
}

void copy_managed_variables() {
  each_managed([](Global& g) {
    __builtin_memcpy(g.contents, reinterpret_cast<const void*>(g.address), g.size);
  });
}

}  // namespace gpuckpt::device
