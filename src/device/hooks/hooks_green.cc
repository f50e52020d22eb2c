// Green contexts and the resources they are made of, as the program asks for them. See
// green_contexts.h.
#include "device/hooks/hooks.h"
#include "device/objects/green_contexts.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

constexpr size_t kMostResources = 65536;
size_t resources_kept;  // guarded by the registry's lock

ResourceObject* find_resource(const CUdevResource& held) {
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kResource &&
        !__builtin_memcmp(&static_cast<ResourceObject*>(o)->held, &held, sizeof held))
      return static_cast<ResourceObject*>(o);
  return nullptr;
}

// Returns null if the resource is known already or cannot be kept.
ResourceObject* keep_resource(const CUdevResource& given) {
  if (find_resource(given)) return nullptr;
  if (++resources_kept > kMostResources) {
    registry().refuse("cuDevSmResourceSplitByCount: too many splits to keep");
    return nullptr;
  }
  auto* r = registry().add<ResourceObject>(ObjectType::kResource, 0, 0);
  if (r) r->held = r->now = given;
  return r;
}

// The driver's bytes for what the program holds; unchanged when it is not known.
CUdevResource current_resource(const CUdevResource& held) {
  ResourceObject* r = find_resource(held);
  return r ? r->now : held;
}

GreenObject* green_object(CUgreenCtx handle) {
  return registry().find<GreenObject>(ObjectType::kGreenContext,
                                      name_from(Kind::kGreenCtx, handle));
}

void note_split(const CUdevResource& input, unsigned asked, unsigned flags, unsigned least,
                const CUdevResource* groups, unsigned count, const CUdevResource* rest) {
  MutexLock guard(registry().lock);
  ResourceObject* from = find_resource(input);
  if (!from)
    return registry().refuse("cuDevSmResourceSplitByCount: of resources that are not known");
  auto* split = registry().add<SplitObject>(ObjectType::kSplit, 0, 0);
  if (!split) return;
  split->input = from;
  split->asked = asked;
  split->flags = flags;
  split->least = least;
  bool kept = true;
  auto keep = [&](const CUdevResource& given) {
    ResourceObject* r = keep_resource(given);
    if (r) r->split = split;
    return r;
  };
  for (unsigned i = 0; i < count; ++i) kept &= split->groups.push(keep(groups[i]));
  if (rest && rest->type != CU_DEV_RESOURCE_TYPE_INVALID) split->rest = keep(*rest);
  if (!kept) registry().refuse("no memory for the parts of a device");
}

void note_converted(CUgreenCtx green, CUcontext converted) {
  uint64_t name = new_name(Kind::kContext, converted);
  MutexLock guard(registry().lock);
  GreenObject* g = green_object(green);
  if (!g) return;
  for (uint64_t known : g->converted)
    if (known == name) return;
  g->converted.push(name);
  list_converted(name, g->context, g->name);
}

bool depends_on(const ResourceObject* r, uint64_t green) {
  for (; r; r = r->split ? r->split->input : nullptr)
    if (r->green == green) return true;
  return false;
}

// What was split from a green context's resources cannot be made again without it.
void forget_resources_of(uint64_t green) {
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kResourceDesc) continue;
    auto* d = static_cast<ResourceDescObject*>(o);
    for (ResourceObject* r : d->resources) d->lost |= depends_on(r, green);
  }
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kGreenContext && static_cast<GreenObject*>(o)->desc &&
        static_cast<GreenObject*>(o)->desc->lost)
      registry().refuse("cuGreenCtxDestroy: a green context outlives the one it is a part of");
}

}  // namespace
}  // namespace device

using namespace device;

CUresult hook_cuDeviceGetDevResource(CUdevice device, CUdevResource* resource,
                                     CUdevResourceType type) {
  CUresult result = real().cuDeviceGetDevResource(device, resource, type);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (ResourceObject* r = keep_resource(*resource)) r->device = device;
  return result;
}

CUresult hook_cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  CUresult result = real().cuCtxGetDevResource(hCtx, resource, type);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = name_from(Kind::kContext, hCtx), green = green_of_converted(name);
  MutexLock guard(registry().lock);
  if (ResourceObject* r = keep_resource(*resource))
    (green ? r->green : r->of_context) = green ? green : name;
  return result;
}

CUresult hook_cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                       CUdevResourceType type) {
  CUresult result = real().cuGreenCtxGetDevResource(hCtx, resource, type);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (ResourceObject* r = keep_resource(*resource)) r->green = name_from(Kind::kGreenCtx, hCtx);
  return result;
}

CUresult hook_cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                          const CUdevResource* input, CUdevResource* remaining,
                                          unsigned int useFlags, unsigned int minCount) {
  if (!input)
    return real().cuDevSmResourceSplitByCount(result, nbGroups, input, remaining, useFlags,
                                              minCount);
  const CUdevResource held = *input;  // an output may lie over it
  CUdevResource now;
  {
    MutexLock guard(registry().lock);
    now = current_resource(held);
  }
  const unsigned asked = nbGroups ? *nbGroups : 0;
  CUresult status =
      real().cuDevSmResourceSplitByCount(result, nbGroups, &now, remaining, useFlags, minCount);
  if (status == CUDA_SUCCESS && result)
    note_split(held, asked, useFlags, minCount, result, *nbGroups, remaining);
  return status;
}

CUresult hook_cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                        unsigned int nbResources) {
  Vector<CUdevResource> now;
  Vector<ResourceObject*> known;
  bool kept = true, all_known = true;
  if (resources) {
    MutexLock guard(registry().lock);
    for (unsigned i = 0; i < nbResources; ++i) {
      kept &= now.push(current_resource(resources[i]));
      ResourceObject* r = find_resource(resources[i]);
      all_known &= r != nullptr;
      kept &= known.push(r);
    }
  }
  if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result =
      real().cuDevResourceGenerateDesc(phDesc, resources ? now.data() : nullptr, nbResources);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kDevResourceDesc, *phDesc);
  MutexLock guard(registry().lock);
  if (!all_known) registry().refuse("cuDevResourceGenerateDesc: of resources that are not known");
  auto* d = registry().add<ResourceDescObject>(ObjectType::kResourceDesc, name, 0);
  if (d) d->resources.swap(known);
  return result;
}

// It retains the primary context, which must come back as one that the program retained itself.
CUresult hook_cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                               unsigned int flags) {
  CUcontext primary;
  if (CUresult result = hook_cuDevicePrimaryCtxRetain(&primary, dev)) return result;
  CUresult result = real().cuGreenCtxCreate(phCtx, desc, dev, flags);
  if (result != CUDA_SUCCESS) {
    hook_cuDevicePrimaryCtxRelease_v2(dev);
    return result;
  }
  uint64_t name = new_name(Kind::kGreenCtx, *phCtx), context = name_from(Kind::kContext, primary);
  {
    MutexLock guard(registry().lock);
    auto* g = registry().add<GreenObject>(ObjectType::kGreenContext, name, context);
    if (!g) return result;
    g->desc = registry().find<ResourceDescObject>(ObjectType::kResourceDesc,
                                                  name_from(Kind::kDevResourceDesc, desc));
    g->device = dev;
    g->flags = flags;
    if (!g->desc) registry().refuse("cuGreenCtxCreate: of a descriptor that is not known");
  }
  CUcontext converted;
  if (real().cuCtxFromGreenCtx(&converted, *phCtx) == CUDA_SUCCESS)
    note_converted(*phCtx, converted);
  return result;
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx) {
  uint64_t name = name_from(Kind::kGreenCtx, hCtx);
  int device = -1;
  {
    MutexLock guard(registry().lock);
    GreenObject* g = green_object(hCtx);
    if (g) {
      device = g->device;
      for (uint64_t converted : g->converted) {
        unlist_converted(converted);
        if (translating()) drop(Kind::kContext, converted);
      }
      forget_resources_of(name);
    }
    for (Object *o = registry().first(), *next; g && o; o = next) {
      next = o->next;
      if (o->type == ObjectType::kStream && static_cast<StreamObject*>(o)->green == name)
        registry().remove(o);
    }
  }
  CUresult result = registry().end(ObjectType::kGreenContext, name,
                                   [&] { return real().cuGreenCtxDestroy(hCtx); });
  if (result != CUDA_SUCCESS || device < 0) return result;
  hook_cuDevicePrimaryCtxRelease_v2(device);
  return result;
}

CUresult hook_cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  CUresult result = real().cuCtxFromGreenCtx(pContext, hCtx);
  if (result == CUDA_SUCCESS) note_converted(hCtx, *pContext);
  return result;
}

CUresult hook_cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                     int priority) {
  CUresult result = real().cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kStream, *phStream);
  MutexLock guard(registry().lock);
  GreenObject* g = green_object(greenCtx);
  auto* s = registry().add<StreamObject>(ObjectType::kStream, name, g ? g->context : 0);
  if (!s) return result;
  s->flags = flags;
  s->priority = priority;
  s->green = name_from(Kind::kGreenCtx, greenCtx);
  return result;
}

}  // namespace gpuckpt
