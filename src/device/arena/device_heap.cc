#include "device/arena/device_heap.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text/text.h"
#include "device/base/settings.h"
#include "device/capture/capture.h"
#include "device/modules/image_calls.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {

// Of an image: what leads to malloc, and whether anything leads to printf.
struct DeviceCalls {
  NameSet allocating;
  bool prints = false;
  bool readable = true;
};

void free_calls(DeviceCalls* calls) { destroy(calls); }

namespace {

char* unloaded;  // a kernel that may have called malloc, of a module that is gone

DeviceCalls* read_calls(const Image* image) {
  auto* calls = make<DeviceCalls>();
  if (!calls) return nullptr;
  NameSet printing;
  calls->allocating.add("malloc", 6);
  printing.add("vprintf", 7);
  calls->readable = callers_in(image->view(), &calls->allocating);
  calls->prints = !callers_in(image->view(), &printing) || printing.size() > 1;
  return calls;
}

Image* image_of(const Object* o) {
  if (o->type == ObjectType::kLibrary) return static_cast<const LibraryObject*>(o)->image;
  if (o->type != ObjectType::kModule) return nullptr;
  auto* module = static_cast<const ModuleObject*>(o);
  if (module->image) return module->image;
  auto* library = registry().find<LibraryObject>(ObjectType::kLibrary, module->library);
  return library ? library->image : nullptr;
}

// Images that were not read yet, each with a reference.
void take_unread(Vector<Image*>* out) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    Image* image = image_of(o);
    if (!image || image->calls || image->reading) continue;
    image->reading = true;
    ++image->uses;
    if (!out->push(image)) return registry().drop_image(image);
  }
}

void read_new_images() {
  Vector<Image*> images;
  take_unread(&images);
  for (Image* image : images) {
    DeviceCalls* calls = read_calls(image);
    MutexLock guard(registry().lock);
    image->calls = calls;
    image->reading = false;
    registry().drop_image(image);
  }
}

// Name of a kernel that was taken from `owner` (all owners: null) and may call malloc.
const char* allocating_kernel(const Object* owner, bool* readable) {
  for (Object* o = registry().first(); o; o = o->next) {
    const Object* from = nullptr;
    const char* symbol = nullptr;
    if (o->type == ObjectType::kKernel) {
      auto* k = static_cast<KernelObject*>(o);
      from = registry().find<Object>(ObjectType::kLibrary, k->library);
      symbol = k->symbol;
    } else if (o->type == ObjectType::kFunction) {
      auto* f = static_cast<FunctionObject*>(o);
      from = f->module ? registry().find<Object>(ObjectType::kModule, f->module) : nullptr;
      symbol = f->symbol;
    }
    if (!from || !symbol || (owner && from != owner)) continue;
    const Image* image = image_of(from);
    if (!image || !image->calls) continue;
    if (!image->calls->readable) *readable = false;
    if (image->calls->allocating.has(symbol)) return symbol;
  }
  return nullptr;
}

bool prints() {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    const Image* image = image_of(o);
    if (image && image->calls && image->calls->prints) return true;
  }
  return false;
}

}  // namespace

void heap_note_unload(const Object* object) {
  Image* image = image_of(object);
  if (unloaded || !image) return;
  if (!image->calls) image->calls = read_calls(image);
  bool readable;
  if (const char* symbol = allocating_kernel(object, &readable)) unloaded = keep_text(symbol);
}

bool check_device_heap(DeviceReport* report) {
  read_new_images();
  if (settings().heap_is_empty) return true;
  MutexLock guard(registry().lock);
  bool readable = true;
  const char* symbol = unloaded ? unloaded : allocating_kernel(nullptr, &readable);
  if (symbol)
    return report->fail(
        kExitRefused,
        "malloc in device code: what the kernel %s may have left on the device's heap is "
        "not captured (GPUCKPT_DEVICE_HEAP=empty says that it leaves nothing)",
        symbol);
  return readable ||
         report->fail(kExitRefused, "a module's image could not be read for what its kernels call");
}

bool print_pending() {
  if (!prints()) return true;
  // The driver takes the lock in our name. Waiting for it could be for ever: its holder may wait at
  // the gate.
  if (ftrylockfile(stdout) != 0) return false;
  Vector<uint64_t> contexts;
  live_contexts(&contexts);
  for (uint64_t name : contexts) {
    WithContext with(name);
    if (with) real().cuCtxSynchronize();
  }
  funlockfile(stdout);
  return true;
}

}  // namespace gpuckpt::device
