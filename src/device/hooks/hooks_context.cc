// Contexts: which exist, how they were made, and what dies with them.
#include "device/base/lock_order.h"
#include "device/capture/capture.h"
#include "device/hooks/hooks.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

// Held from before the driver's call until what it did is recorded: a context that is made may get
// the value of one that has just ended, whose memory and objects are not forgotten yet.
Mutex beginning_or_ending{kContextLock};

CUresult note_created(CUresult result, CUcontext* pctx, unsigned flags, CUdevice device,
                      const RealmPlaces& places) {
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kContext, *pctx);
  MutexLock guard(registry().lock);
  auto* context = registry().add<ContextObject>(ObjectType::kContext, name, name);
  if (!context) return result;
  context->device = device;
  context->flags = flags;
  context->places = places;
  return result;
}

// Functions, streams and the like may get the values of the context's, too: they are off the list
// before the driver ends it.
template <typename F>
CUresult end_with_objects(uint64_t name, F native) {
  Vector<Object*> objects;
  {
    MutexLock guard(registry().lock);
    registry().detach_context(name, &objects);
  }
  CUresult result = native();
  {
    MutexLock guard(registry().lock);
    registry().finish_context_end(&objects, result == CUDA_SUCCESS);
  }
  if (result == CUDA_SUCCESS) context_ended(name);
  return result;
}

CUresult end_created(CUcontext ctx, CUresult (*native)(CUcontext)) {
  MutexLock one(beginning_or_ending);
  uint64_t name = name_from(Kind::kContext, ctx);
  bool known;
  {
    MutexLock guard(registry().lock);
    ContextObject* context = registry().context(name);
    known = context && !context->primary;
  }
  if (!known) return native(ctx);
  stage_leave_context(name);
  CUresult result = end_with_objects(name, [&] { return native(ctx); });
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (ContextObject* context = registry().context(name)) registry().remove(context);
  return result;
}

// Before the last release of (or a reset of) the primary context.
void end_primary(CUdevice device, CUresult (*native)(CUdevice), CUresult* result, bool reset) {
  MutexLock one(beginning_or_ending);
  uint64_t name = 0;
  {
    MutexLock guard(registry().lock);
    ContextObject* context = registry().primary_of(device);
    if (context && context->alive && (reset || context->retained <= 1)) name = context->name;
  }
  if (name) stage_leave_context(name);
  *result = name ? end_with_objects(name, [&] { return native(device); }) : native(device);
  if (*result != CUDA_SUCCESS) return;
  MutexLock guard(registry().lock);
  ContextObject* context = registry().primary_of(device);
  if (!context) return;
  if (!reset && context->retained) --context->retained;
  if (name) context->alive = reset && context->retained;
}

}  // namespace

// The driver has ended the context, its work and its registrations (without waiting for what never
// ends).
void context_ended(uint64_t name) {
  free_memory_of(name);
  free_pinned_of(name);
  MutexLock guard(registry().lock);
  registry().forget_context(name);
}

}  // namespace device

using namespace device;

CUresult hook_cuInit(unsigned int Flags) {
  RealmRecording recording(&places_of_init);
  return real().cuInit(Flags);
}

CUresult hook_cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  MutexLock one(beginning_or_ending);
  RealmPlaces places;
  CUresult result;
  {
    RealmRecording recording(&places);
    result = real().cuCtxCreate(pctx, flags, dev);
  }
  note_created(result, pctx, flags, dev, places);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (ContextObject* c = registry().context(name_from(Kind::kContext, *pctx))) c->first_api = true;
  return result;
}

CUresult hook_cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  MutexLock one(beginning_or_ending);
  RealmPlaces places;
  CUresult result;
  {
    RealmRecording recording(&places);
    result = real().cuCtxCreate_v2(pctx, flags, dev);
  }
  return note_created(result, pctx, flags, dev, places);
}

CUresult hook_cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                             unsigned int flags, CUdevice dev) {
  MutexLock one(beginning_or_ending);
  RealmPlaces places;
  CUresult result;
  {
    RealmRecording recording(&places);
    result = real().cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
  }
  if (result == CUDA_SUCCESS && numParams)
    registry().refuse("cuCtxCreate: a context with execution affinity is in use");
  return note_created(result, pctx, flags, dev, places);
}

CUresult hook_cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                             unsigned int flags, CUdevice dev) {
  MutexLock one(beginning_or_ending);
  RealmPlaces places;
  CUresult result;
  {
    RealmRecording recording(&places);
    result = real().cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
  }
  if (result == CUDA_SUCCESS && ctxCreateParams &&
      (ctxCreateParams->numExecAffinityParams || ctxCreateParams->cigParams))
    registry().refuse(
        "cuCtxCreate: a context with execution affinity or graphics interop is in use");
  return note_created(result, pctx, flags, dev, places);
}

CUresult hook_cuCtxDestroy(CUcontext ctx) { return end_created(ctx, real().cuCtxDestroy); }
CUresult hook_cuCtxDestroy_v2(CUcontext ctx) { return end_created(ctx, real().cuCtxDestroy_v2); }

// A context's uses are counted: the last detach ends it.
CUresult hook_cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  CUresult result = real().cuCtxAttach(pctx, flags);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (ContextObject* c = registry().context(name_from(Kind::kContext, *pctx))) ++c->attached;
  return result;
}
CUresult hook_cuCtxDetach(CUcontext ctx) {
  uint64_t name = name_from(Kind::kContext, ctx);
  bool last;
  {
    MutexLock guard(registry().lock);
    ContextObject* c = registry().context(name);
    last = !c || !c->attached;
  }
  CUresult result = last ? end_created(ctx, real().cuCtxDetach) : real().cuCtxDetach(ctx);
  if (result != CUDA_SUCCESS) return result;
  if (last) {
    ThreadRecord* thread = this_thread_record();
    if (thread && thread->context_count && bits(thread->context[thread->context_count - 1]) == name)
      --thread->context_count;
    if (translating()) drop(Kind::kContext, name);
    return result;
  }
  MutexLock guard(registry().lock);
  if (ContextObject* c = registry().context(name)) --c->attached;
  return result;
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  MutexLock one(beginning_or_ending);
  bool made;  // by this call, so that its places count
  {
    MutexLock guard(registry().lock);
    ContextObject* known = registry().primary_of(dev);
    made = !known || !known->alive;
  }
  RealmPlaces places;
  CUresult result;
  if (made) {
    RealmRecording recording(&places);
    result = real().cuDevicePrimaryCtxRetain(pctx, dev);
  } else {
    result = real().cuDevicePrimaryCtxRetain(pctx, dev);
  }
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kContext, *pctx);
  MutexLock guard(registry().lock);
  ContextObject* context = registry().context(name);
  if (!context) {
    ContextObject* old = registry().primary_of(dev);
    if (old) registry().remove(old);  // released before; the driver gave another handle now
    context = registry().add<ContextObject>(ObjectType::kContext, name, name);
    if (!context) return result;
    context->device = dev;
    context->primary = true;
    context->places = places;
  }
  context->alive = true;
  ++context->retained;
  return result;
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev) {
  CUresult result;
  end_primary(dev, real().cuDevicePrimaryCtxRelease, &result, false);
  return result;
}
CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  CUresult result;
  end_primary(dev, real().cuDevicePrimaryCtxRelease_v2, &result, false);
  return result;
}
CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev) {
  CUresult result;
  end_primary(dev, real().cuDevicePrimaryCtxReset, &result, true);
  return result;
}
CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  CUresult result;
  end_primary(dev, real().cuDevicePrimaryCtxReset_v2, &result, true);
  return result;
}

// Flags are asked from the driver at snapshot time.
CUresult hook_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return real().cuDevicePrimaryCtxSetFlags(dev, flags);
}
CUresult hook_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return real().cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

namespace {

// Peer access is a right of a context; the arena's memory has rights per device, so both are told.
CUresult change_peer(CUcontext peer, unsigned flags, bool enable) {
  CUresult result =
      enable ? real().cuCtxEnablePeerAccess(peer, flags) : real().cuCtxDisablePeerAccess(peer);
  if (result != CUDA_SUCCESS) return result;
  uint64_t self = current_context_name(), other = name_from(Kind::kContext, peer);
  int self_device = -1, other_device = -1;
  {
    MutexLock guard(registry().lock);
    ContextObject* mine = registry().context(self);
    ContextObject* theirs = registry().context(other);
    if (!mine || !theirs) return result;
    self_device = mine->device;
    other_device = theirs->device;
    for (size_t i = 0; i < mine->peers.size(); ++i)
      if (mine->peers[i] == other) mine->peers.swap_remove(i--);
    if (enable) mine->peers.push(other);
  }
  let_access(other_device, self_device, enable);
  return result;
}

}  // namespace

CUresult hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return change_peer(peerContext, Flags, true);
}
CUresult hook_cuCtxDisablePeerAccess(CUcontext peerContext) {
  return change_peer(peerContext, 0, false);
}

}  // namespace gpuckpt
