#include "driver/context/green.h"

#include <string.h>

#include "driver/stream/work.h"

namespace simgpu {
namespace {

// The driver's own bytes of a CUdevResource. They are valid only in the process that wrote them.
struct Origin {
  uint64_t process;
  uint64_t split;    // 0: as a device or a context has it, which alone can be split
  uint64_t context;  // id of the green context it is a part of; 0: of the device
  uint32_t device;
  uint32_t first, count;  // multiprocessors
};
static_assert(sizeof(Origin) <= sizeof(CUdevResource::_internal_padding));

uint64_t process_mark() {
  static std::atomic<uint64_t> mark{0};
  if (mark.load() == 0) {
    uint64_t none = 0;
    mark.compare_exchange_strong(none, state()->random_below(~0ull) | 1);
  }
  return mark.load();
}

CUdevResource resource_of(Origin o, unsigned least, unsigned together) {
  CUdevResource r = {};
  o.process = process_mark();
  r.type = CU_DEV_RESOURCE_TYPE_SM;
  memcpy(r._internal_padding, &o, sizeof o);
  r.sm = {o.count, least, together};
  return r;
}

bool read(const CUdevResource& r, Origin* o) {
  if (r.type != CU_DEV_RESOURCE_TYPE_SM) return false;
  memcpy(o, r._internal_padding, sizeof *o);
  return o->process == process_mark() && device_of(static_cast<int>(o->device));
}

// Multiprocessors of a part: at least, and a multiple of.
void granularity(const Device& d, unsigned* least, unsigned* together) {
  *least = d.sm() >= 90 ? 8 : d.sm() >= 80 ? 4 : 2;
  *together = d.sm() >= 90 ? 8 : 2;
  if (const unsigned part = state()->options.part; part != 0) *least = *together = part;
}

CUresult whole(const Device& d, uint64_t context, unsigned count, CUdevResource* out,
               CUdevResourceType type) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  unsigned least, together;
  granularity(d, &least, &together);
  *out = resource_of({0, 0, context, static_cast<uint32_t>(d.ordinal), 0, count}, least, together);
  return CUDA_SUCCESS;
}

class ResourceDesc : public Object {
 public:
  static constexpr Kind kKind = Kind::kResourceDesc;
  ResourceDesc(uint32_t d, unsigned n) : Object(kKind), device(d), multiprocessors(n) {}
  const uint32_t device;
  const unsigned multiprocessors;
};

CUresult find(CUgreenCtx handle, Ref<GreenContext>* out) {
  *out = state()->handles.get<GreenContext>(handle);
  if (!*out) return CUDA_ERROR_INVALID_CONTEXT;
  return (*out)->usable() ? (*out)->primary->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Where the streams of a green context are now.
std::vector<Point> points_of(const GreenContext& g) {
  std::vector<Point> points;
  Lock lock(g.primary->order);
  for (Stream* s : g.primary->streams)
    if (s->green.get() == &g) points.push_back(s->last());
  return points;
}

bool captures(const GreenContext& g) {
  Lock order(g.primary->order);
  Lock lock(capture_mutex());
  for (Stream* s : g.primary->streams)
    if (s->green.get() == &g && s->capture) return true;
  return false;
}

Work* nothing_after(std::vector<Point> points) {
  Work* w = new_work("green context", [](Context&) { return CUDA_SUCCESS; });
  w->after = std::move(points);
  return w;
}

}  // namespace

Ref<GreenContext> current_green() {
  ThreadState* t = thread_if_known();
  if (!t || t->stack.empty() || !t->stack.back().green) return {};
  Ref<GreenAlias> alias = state()->handles.get<GreenAlias>(t->stack.back().green);
  return alias ? Ref<GreenContext>(alias->green) : Ref<GreenContext>();
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuDeviceGetDevResource(CUdevice device, CUdevResource* out, CUdevResourceType type) {
  ENTER(cuDeviceGetDevResource);
  Device* d = device_of(device);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  return whole(*d, 0, Device::kMultiprocessors, out, type);
}

SIMGPU_API cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* out, CUdevResourceType type) {
  ENTER(cuGreenCtxGetDevResource);
  Ref<GreenContext> g;
  if (CUresult r = find(handle, &g); r != CUDA_SUCCESS) return r;
  return whole(*g->primary->device, g->id, g->multiprocessors, out, type);
}

SIMGPU_API cuCtxGetDevResource(CUcontext handle, CUdevResource* out, CUdevResourceType type) {
  ENTER(cuCtxGetDevResource);
  if (Ref<GreenAlias> alias = state()->handles.get<GreenAlias>(handle))
    return cuGreenCtxGetDevResource(reinterpret_cast<CUgreenCtx>(alias->green), out, type);
  Ref<Context> c = context_of(handle);
  if (!c || !c->active()) return CUDA_ERROR_INVALID_CONTEXT;
  return whole(*c->device, 0, Device::kMultiprocessors, out, type);
}

SIMGPU_API cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* groups,
                                       const CUdevResource* input, CUdevResource* remaining,
                                       unsigned flags, unsigned wanted) {
  ENTER(cuDevSmResourceSplitByCount);
  constexpr unsigned kKnown = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                              CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  if (!groups || !input || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Origin from;
  if (!read(*input, &from) || from.split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  unsigned least, together;
  granularity(*device_of(static_cast<int>(from.device)), &least, &together);
  if ((flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0) least = together = 2;
  if (wanted > from.count) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const auto size = static_cast<uint32_t>(round_up(wanted < least ? least : wanted, together));
  uint32_t made = from.count / size;
  if (made == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (!result) {
    *groups = made;
    return CUDA_SUCCESS;
  }
  if (*groups == 0) return CUDA_ERROR_INVALID_VALUE;
  if (made > *groups) made = *groups;
  const uint64_t split = fresh_id();
  for (uint32_t i = 0; i < made; ++i)
    result[i] = resource_of({0, split, from.context, from.device, from.first + i * size, size},
                            least, together);
  *groups = made;
  if (!remaining) return CUDA_SUCCESS;
  const uint32_t taken = made * size;
  *remaining = taken == from.count ? CUdevResource{}
                                   : resource_of({0, split, from.context, from.device,
                                                  from.first + taken, from.count - taken},
                                                 least, together);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                     unsigned count) {
  ENTER(cuDevResourceGenerateDesc);
  if (!out || !resources || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Origin first = {};
  unsigned multiprocessors = 0;
  for (unsigned i = 0; i < count; ++i) {
    Origin o;
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (!read(resources[i], &o)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (i == 0) first = o;
    if (i != 0 && (o.device != first.device || o.split != first.split || o.split == 0))
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    for (unsigned k = 0; k < i; ++k)
      if (memcmp(&resources[k], &resources[i], sizeof *resources) == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    multiprocessors += o.count;
  }
  auto* d = new ResourceDesc(first.device, multiprocessors);  // nothing ends one
  state()->handles.add(d);
  *out = reinterpret_cast<CUdevResourceDesc>(d);
  return CUDA_SUCCESS;
}

SIMGPU_API cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc desc, CUdevice ordinal,
                            unsigned flags) {
  ENTER(cuGreenCtxCreate);
  if (!out || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Ref<ResourceDesc> d = state()->handles.get<ResourceDesc>(desc);
  if (!d || d->device != static_cast<uint32_t>(ordinal)) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> primary;
  if (CUresult r = retain_primary(*device, &primary); r != CUDA_SUCCESS) return r;
  auto* g = new GreenContext(primary, d->multiprocessors);  // the handle's
  g->alias = Ref<GreenAlias>::adopt(new GreenAlias(g));
  g->standard = Ref<Stream>::adopt(
      new Stream(primary, Stream::Role::kCreated, CU_STREAM_NON_BLOCKING, 0, Ref<Object>(g)));
  state()->handles.add(g);
  state()->handles.add(g->alias.get());
  *out = reinterpret_cast<CUgreenCtx>(g);
  return CUDA_SUCCESS;
}

// The streams stay as handles; every call with one of them fails from now on.
SIMGPU_API cuGreenCtxDestroy(CUgreenCtx handle) {
  ENTER(cuGreenCtxDestroy);
  Ref<GreenContext> g = state()->handles.get<GreenContext>(handle);
  if (!g || !state()->handles.remove(g.get())) return CUDA_ERROR_INVALID_CONTEXT;
  state()->handles.remove(g->alias.get());
  const bool usable = g->usable();
  for (Point& p : points_of(*g)) p.timeline->wait(p.number);
  g->gone.store(true);
  g->standard->close();
  g->standard = {};
  g->release();
  if (usable) release_primary(*g->primary->device);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  ENTER(cuCtxFromGreenCtx);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GreenContext> g;
  if (CUresult r = find(handle, &g); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUcontext>(g->alias.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* out) {
  ENTER(cuGreenCtxGetId);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GreenContext> g = current_green();
  if (!handle && !g) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle)
    if (CUresult r = find(handle, &g); r != CUDA_SUCCESS) return r;
  *out = g->id;
  return CUDA_SUCCESS;
}

SIMGPU_API cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx handle, unsigned flags, int priority) {
  ENTER(cuGreenCtxStreamCreate);
  if (!out || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Ref<GreenContext> g;
  if (CUresult r = find(handle, &g); r != CUDA_SUCCESS) return r;
  return create_stream(g->primary, g.get(), flags, priority, out);
}

SIMGPU_API cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* out) {
  ENTER(cuStreamGetGreenCtx);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUgreenCtx>(s->green.get());
  return CUDA_SUCCESS;
}

// All work of its streams so far: its default stream waits for them and records.
SIMGPU_API cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  ENTER(cuGreenCtxRecordEvent);
  Ref<GreenContext> g;
  if (CUresult r = find(handle, &g); r != CUDA_SUCCESS) return r;
  if (captures(*g)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  g->standard->submit(nothing_after(points_of(*g)));
  return record_event(event, *g->standard);
}

SIMGPU_API cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  ENTER(cuGreenCtxWaitEvent);
  Ref<GreenContext> g;
  if (CUresult r = find(handle, &g); r != CUDA_SUCCESS) return r;
  if (captures(*g)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (CUresult r = wait_event(*g->standard, event); r != CUDA_SUCCESS) return r;
  std::vector<Ref<Stream>> others;
  {
    Lock lock(g->primary->order);
    for (Stream* s : g->primary->streams)
      if (s->green.get() == g.get() && s != g->standard.get()) others.push_back(Ref<Stream>(s));
  }
  for (Ref<Stream>& s : others) s->submit(nothing_after({g->standard->last()}));
  return CUDA_SUCCESS;
}
