#include "device/base/registry.h"

#include "base/text/text.h"
#include "device/arena/arena_driver.h"
#include "device/arena/device_heap.h"
#include "device/modules/links.h"
#include "device/modules/references.h"
#include "device/objects/arrays.h"
#include "device/objects/graphs.h"
#include "device/objects/green_contexts.h"
#include "intercept/gate/use_note.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

// How many unloaded modules are kept for the order of loads. Beyond it the oldest are forgotten;
// should that move a variable, the restore notices and refuses.
constexpr uint64_t kMaxDead = 4096;

void free_global(Global& g) {
  release(g.symbol);
  release(g.contents);
}
void drop_value(Vector<uint64_t>* from, uint64_t value) {
  for (size_t i = 0; i < from->size(); ++i)
    if ((*from)[i] == value) from->swap_remove(i--);
}
void free_globals(Vector<Global>& globals) {
  for (Global& g : globals) free_global(g);
  globals.clear();
}

}  // namespace

namespace {
uint64_t held_bytes[kMaxDevices];
}

void OurBytes::take(int on, uint64_t count) {
  if (on < 0 || on >= kMaxDevices) return;
  device = on, bytes = count;
  __atomic_add_fetch(&held_bytes[on], count, __ATOMIC_RELAXED);
}
void OurBytes::give_back() {
  if (device >= 0) __atomic_sub_fetch(&held_bytes[device], bytes, __ATOMIC_RELAXED);
  device = -1;
}
uint64_t our_bytes(int device) {
  return device < 0 || device >= kMaxDevices
             ? 0
             : __atomic_load_n(&held_bytes[device], __ATOMIC_RELAXED);
}

uint32_t captures_active;
uint64_t capture_latest;

Registry& registry() {
  static Registry* instance;
  return made_once(&instance);
}

char* keep_text(const char* text) {
  size_t bytes = length(text) + 1;
  char* copy = static_cast<char*>(allocate(bytes));
  if (copy) __builtin_memcpy(copy, text, bytes);
  return copy;
}

void Registry::refuse(const char* why) {
  if (!broken) copy(reason, sizeof reason, why);
  broken = true;
}

bool Registry::list(Object* object, ObjectType type, uint64_t name, uint64_t context) {
  object->type = type;
  object->name = name;
  object->context = context;
  if (name && !by_name_[static_cast<size_t>(type)].put(name, object)) return false;
  object->previous = last_;
  (last_ ? last_->next : first_) = object;
  last_ = object;
  return true;
}

void Registry::unlist(Object* object) {
  (object->previous ? object->previous->next : first_) = object->next;
  (object->next ? object->next->previous : last_) = object->previous;
  auto& names = by_name_[static_cast<size_t>(object->type)];
  Object** known = object->name ? names.find(object->name) : nullptr;
  if (known && *known == object) names.erase(object->name);
}

void Registry::remove(Object* object) {
  unlist(object);
  dispose(object);
}

Object* Registry::detach(ObjectType type, uint64_t name) {
  MutexLock guard(lock);
  auto* object = find<Object>(type, name);
  if (object) unlist(object);
  return object;
}

void Registry::finish_end(Object* object, bool ended) {
  MutexLock guard(lock);
  if (ended) return dispose(object);
  object->next = object->previous = nullptr;
  if (!list(object, object->type, object->name, object->context)) broken = true;
}

void Registry::dispose(Object* object) {
  switch (object->type) {
    case ObjectType::kModule: {
      auto* module = static_cast<ModuleObject*>(object);
      module->held.give_back();
      free_globals(module->globals);
      registry().drop_image(module->image);
      return destroy(module);
    }
    case ObjectType::kLibrary: {
      auto* library = static_cast<LibraryObject*>(object);
      free_globals(library->globals);
      registry().drop_image(library->image);
      return destroy(library);
    }
    case ObjectType::kKernel:
      release(static_cast<KernelObject*>(object)->symbol);
      return destroy(static_cast<KernelObject*>(object));
    case ObjectType::kFunction:
      release(static_cast<FunctionObject*>(object)->symbol);
      destroy(static_cast<FunctionObject*>(object)->launch);
      return destroy(static_cast<FunctionObject*>(object));
    case ObjectType::kContext:
      return destroy(static_cast<ContextObject*>(object));
    case ObjectType::kStream:
      return destroy(static_cast<StreamObject*>(object));
    case ObjectType::kPool:
      return destroy(static_cast<PoolObject*>(object));
    case ObjectType::kUserObject:
      return destroy(static_cast<UserObject*>(object));
    case ObjectType::kLink:
      free_inputs(static_cast<LinkObject*>(object));
      release(static_cast<LinkObject*>(object)->output);
      return destroy(static_cast<LinkObject*>(object));
    case ObjectType::kArray:
      release(static_cast<ArrayObject*>(object)->texels);
      return destroy(static_cast<ArrayObject*>(object));
    case ObjectType::kMipmap:
      release(static_cast<MipmapObject*>(object)->texels);
      return destroy(static_cast<MipmapObject*>(object));
    case ObjectType::kTexture:
    case ObjectType::kSurface:
      return destroy(static_cast<TextureObject*>(object));
    case ObjectType::kTextureReference:
    case ObjectType::kSurfaceReference:
      release(static_cast<ReferenceObject*>(object)->symbol);
      return destroy(static_cast<ReferenceObject*>(object));
    case ObjectType::kSplit:
      return destroy(static_cast<SplitObject*>(object));
    case ObjectType::kResourceDesc:
      return destroy(static_cast<ResourceDescObject*>(object));
    case ObjectType::kGreenContext:
      return destroy(static_cast<GreenObject*>(object));
    case ObjectType::kGraph:
      free_record(static_cast<GraphObject*>(object)->record);
      return destroy(static_cast<GraphObject*>(object));
    case ObjectType::kGraphExec:
      free_record(static_cast<GraphExecObject*>(object)->record);
      return destroy(static_cast<GraphExecObject*>(object));
    default:
      release(object);  // nothing inside
  }
}

namespace {

// What the application calls a thing of this kind.
Kind kind_of(ObjectType type) {
  switch (type) {
    case ObjectType::kFunction:
      return Kind::kFunction;
    case ObjectType::kKernel:
      return Kind::kKernel;
    case ObjectType::kTextureReference:
      return Kind::kTexref;
    case ObjectType::kSurfaceReference:
      return Kind::kSurfref;
    default:
      return Kind::kModule;
  }
}

// Whether the object is a function or a reference of the module.
bool belongs_to_module(const Object* o, uint64_t module) {
  if (o->type == ObjectType::kFunction)
    return static_cast<const FunctionObject*>(o)->module == module;
  if (o->type == ObjectType::kTextureReference || o->type == ObjectType::kSurfaceReference)
    return static_cast<const ReferenceObject*>(o)->module == module;
  return false;
}

}  // namespace

// Removes the objects for which `gone` is true, and their names.
template <typename F>
void Registry::drop_all(F gone) {
  for (Object *o = first_, *next; o; o = next) {
    next = o->next;
    if (!gone(o)) continue;
    if (translating() && o->type == ObjectType::kKernel) drop(Kind::kFunction, o->name);
    if (translating()) drop(kind_of(o->type), o->name);
    remove(o);
  }
}

// Whether it is a function or a reference of one of the library's kernels or modules.
bool Registry::belongs_to_part_of(const Object* o, uint64_t library) {
  uint64_t module = 0;
  if (o->type == ObjectType::kFunction) {
    auto* function = static_cast<const FunctionObject*>(o);
    auto* kernel = find<KernelObject>(ObjectType::kKernel, function->kernel);
    if (function->kernel) return kernel && kernel->library == library;
    module = function->module;
  } else if (o->type == ObjectType::kTextureReference || o->type == ObjectType::kSurfaceReference) {
    module = static_cast<const ReferenceObject*>(o)->module;
  }
  auto* owner = module ? find<ModuleObject>(ObjectType::kModule, module) : nullptr;
  return owner && owner->library == library;
}

void Registry::unload(Object* object) {
  heap_note_unload(object);
  forget_uses();
  if (object->type == ObjectType::kModule) static_cast<ModuleObject*>(object)->held.give_back();
  // Its functions and references end with it; those of a library's kernels and modules come first.
  if (object->type == ObjectType::kLibrary)
    drop_all([&](const Object* o) { return belongs_to_part_of(o, object->name); });
  drop_all([&](const Object* o) {
    bool gone = false;
    if (object->type == ObjectType::kModule) gone = belongs_to_module(o, object->name);
    if (object->type == ObjectType::kLibrary) {
      if (o->type == ObjectType::kKernel)
        gone = static_cast<const KernelObject*>(o)->library == object->name;
      if (o->type == ObjectType::kModule)
        gone = o != object && static_cast<const ModuleObject*>(o)->library == object->name;
    }
    return gone ||
           (o->type == ObjectType::kUse && static_cast<const UseObject*>(o)->owner == object);
  });
  by_name_[static_cast<size_t>(object->type)].erase(object->name);
  object->dead = true;
  auto* note = add<Tombstone>(ObjectType::kTombstone, 0, object->context);
  if (note) note->target = object;
  if (++dead_ > kMaxDead) {
    for (Object* o = first_; o; o = o->next) {
      if (o->type != ObjectType::kTombstone) continue;
      Object* target = static_cast<Tombstone*>(o)->target;
      remove(o);
      drop_all([&](const Object* i) {
        return i->type == ObjectType::kInstance &&
               static_cast<const InstanceObject*>(i)->library == target;
      });
      remove(target);
      --dead_;
      break;
    }
  }
}

void Registry::detach_context(uint64_t context, Vector<Object*>* out) {
  for (Object *o = first_, *next; o; o = next) {
    next = o->next;
    if (o->context != context || o->type == ObjectType::kContext || o->dead) continue;
    unlist(o);
    if (!out->push(o)) broken = true;
    if (o->type != ObjectType::kTombstone) continue;
    Object* target = static_cast<Tombstone*>(o)->target;
    if (next == target) next = target->next;
    unlist(target);
    if (!out->push(target)) broken = true;
  }
}

void Registry::finish_context_end(Vector<Object*>* objects, bool ended) {
  for (Object* o : *objects) {
    o->next = o->previous = nullptr;
    if (ended) {
      dead_ -= o->type == ObjectType::kTombstone;
      dispose(o);
    } else if (!list(o, o->type, o->dead ? 0 : o->name, o->context)) {
      broken = true;
    }
  }
}

void Registry::forget_context(uint64_t context) {
  forget_uses();
  Vector<Object*> objects;
  detach_context(context, &objects);
  finish_context_end(&objects, true);
  // What a library has loaded into the context ends as well; the library stays.
  for (Object* o = first_; o; o = o->next) {
    if (o->type == ObjectType::kKernel)
      drop_value(&static_cast<KernelObject*>(o)->used_in, context);
    if (o->type != ObjectType::kLibrary) continue;
    auto* library = static_cast<LibraryObject*>(o);
    for (size_t i = 0; i < library->globals.size(); ++i) {
      if (library->globals[i].context != context) continue;
      free_global(library->globals[i]);
      library->globals.swap_remove(i--);
    }
    drop_value(&library->listed_in, context);
    drop_value(&library->placed_in, context);
  }
}

ContextObject* Registry::primary_of(int device) {
  for (Object* o = first_; o; o = o->next) {
    if (o->type != ObjectType::kContext) continue;
    auto* context = static_cast<ContextObject*>(o);
    if (context->primary && context->device == device) return context;
  }
  return nullptr;
}

namespace {

uint64_t hash_of(const uint8_t* bytes, uint64_t size) {
  uint64_t hash = 0xcbf29ce484222325ull ^ size;
  uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    __builtin_memcpy(&word, bytes + i, 8);
    hash = (hash ^ word) * 0x100000001b3ull;
    hash ^= hash >> 29;
  }
  for (; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

// The list of containers that a wrapper of several has behind the first one. False: no memory.
bool list_parts(Image* image) {
  size_t count = 0;
  const uint8_t* end = image->bytes + image->size;
  for (const uint8_t* at = image->bytes; (at = next_container(at, end));) ++count;
  image->parts = static_cast<const void**>(allocate((count + 1) * sizeof(void*)));
  if (!image->parts) return false;
  count = 0;
  for (const uint8_t* at = image->bytes; (at = next_container(at, end));)
    image->parts[count++] = at;
  image->wrapper.version = kLinkedWrapper;
  image->wrapper.more = image->parts;
  return true;
}

}  // namespace

Image* Registry::keep_image(const ImageView& view) {
  auto* image = static_cast<Image*>(allocate(sizeof(Image) + view.size));
  if (!image) return nullptr;
  gather(view, image->bytes);
  image->uses = 1;
  image->hash = hash_of(image->bytes, view.size);
  image->size = view.size;
  image->kind = view.kind;
  image->wrapped = view.wrapped;
  image->wrapper = {kWrapperMagic, 1, image->bytes, nullptr};
  for (Image* known = images_; known; known = known->next) {
    if (known->hash != image->hash || known->size != image->size ||
        known->wrapped != image->wrapped || (known->parts != nullptr) != (view.parts != nullptr) ||
        __builtin_memcmp(known->bytes, image->bytes, image->size))
      continue;
    release(image);
    ++known->uses;
    return known;
  }
  if (view.parts && !list_parts(image)) {
    release(image);
    return nullptr;
  }
  image->next = images_;
  images_ = image;
  return image;
}

void Registry::drop_image(Image* image) {
  if (!image || --image->uses) return;
  for (Image** at = &images_; *at; at = &(*at)->next) {
    if (*at != image) continue;
    *at = image->next;
    break;
  }
  release(image->parts);
  free_calls(image->calls);
  release(image);
}

uint64_t current_context_name() {
  CUcontext context = nullptr;
  if (real().cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return 0;
  return owning_context(name_from(Kind::kContext, context));
}

WithContext::WithContext(CUcontext context)
    : pushed_(context && real().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}

WithContext::~WithContext() {
  CUcontext ignored;
  if (pushed_) real().cuCtxPopCurrent_v2(&ignored);
}

}  // namespace gpuckpt::device
