#include "driver/context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/base/report.h"
#include "driver/context/green.h"
#include "driver/memory/memory.h"
#include "driver/module/module.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

pthread_key_t thread_key;

// Finishes the work of the thread's own default streams, and ends them.
void thread_ends(void* p) {
  auto* t = static_cast<ThreadState*>(p);
  // In a forked child a stream's lock may be held for ever, so the streams are left alone.
  if (!state() && !t->streams.empty()) return;
  for (ThreadState::Own& own : t->streams) own.stream->close();
  delete t;
}

constexpr size_t kContextBlock = 11376;
static_assert(sizeof(Context) <= kContextBlock);

uint64_t default_limit(int which) {
  switch (which) {
    case CU_LIMIT_STACK_SIZE:
      return 1024;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return kMiB;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return 8 * kMiB;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      return 2;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      return 2048;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return 64;
    default:
      return 0;
  }
}

}  // namespace

void make_thread_key() { pthread_key_create(&thread_key, thread_ends); }

ThreadState* thread_if_known() {
  return static_cast<ThreadState*>(pthread_getspecific(thread_key));
}

ThreadState* thread() {
  ThreadState* t = thread_if_known();
  if (!t) {
    t = new ThreadState;
    pthread_setspecific(thread_key, t);
  }
  return t;
}

bool ContextMemory::find(uint64_t address, ptx::Segment* out) {
  return state()->memory.find(context_, address, out);
}

bool ContextMemory::heap(uint64_t* address, uint64_t* bytes) {
  Lock lock(heap_mutex_);
  if (heap_ == 0) {
    const uint64_t limit = context_.limits[CU_LIMIT_MALLOC_HEAP_SIZE];
    Allocation a;
    a.variable = true;  // cuMemFree refuses it
    const uint64_t size = limit < kBigPage ? kBigPage : limit;
    if (const_cast<Context&>(context_).heap.allocate(size, &a) != CUDA_SUCCESS) return false;
    heap_ = a.base;
    heap_bytes_ = size;
  }
  *address = heap_;
  *bytes = heap_bytes_;
  return true;
}

// SIMGPU_GROW=bytes imitates another driver version, which allocates more memory for a context.
void* Context::operator new(size_t) {
  waste_some(4);
  const char* grow = getenv("SIMGPU_GROW");
  return ::operator new(kContextBlock + (grow ? strtoull(grow, nullptr, 10) : 0));
}
void Context::operator delete(void* p) { ::operator delete(p); }

Context::Context(Device* d, unsigned f, bool p)
    : Object(kKind), device(d), primary(p), flags(f), heap(d) {}

Context::~Context() = default;

CUresult Context::activate() {
  State* s = state();
  uint64_t overhead = device->total() / 256 < 300 * kMiB ? device->total() / 256 : 300 * kMiB;
  if (!device->charge(overhead)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t base = s->memory.reserve(kModuleRegion, kPage, 0);
  if (base == 0) {
    device->discharge(overhead);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  overhead_ = overhead;
  module_base = base;
  module_space.start(s->options.seed);
  id = fresh_id();
  cancel.store(false);
  error_.store(device->lost ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
  peers.store(0);
  for (int i = 0; i < 8; ++i) limits[i] = default_limit(i);
  memory.forget_heap();
  legacy = Ref<Stream>::adopt(new Stream(Ref<Context>(this), Stream::Role::kLegacy, 0, 0));
  s->memory.watch(&memory);
  {
    Lock lock(s->live_mutex);
    s->live.push_back(this);
  }
  active_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

void Context::deactivate() {
  State* s = state();
  active_.store(false, std::memory_order_release);
  cancel.store(true);
  {
    Lock lock(s->live_mutex);
    for (size_t i = 0; i < s->live.size(); ++i) {
      if (s->live[i] == this) {
        s->live.erase(s->live.begin() + static_cast<long>(i));
        break;
      }
    }
  }
  // Created streams are owned by their handles.
  std::vector<Ref<Stream>> ours;
  {
    Lock lock(order);
    for (Stream* st : streams) {
      st->close();
      if (st->role == Stream::Role::kCreated && s->handles.remove(st))
        ours.push_back(Ref<Stream>::adopt(st));
    }
  }
  Ref<Stream> last;
  std::swap(last, legacy);
  {
    Lock lock(workers_mutex);
    while (workers > 0) workers_gone.wait(workers_mutex);
  }
  for (Ref<Stream>& st : ours) end_captures_of(*st);
  ours.clear();
  last = {};
  flush_output();
  std::vector<Ref<Module>> gone;
  {
    Lock lock(mutex);
    gone.swap(modules);
  }
  for (Ref<Module>& m : gone) m->unload();
  gone.clear();
  for (const Allocation& a : s->memory.of_context(id)) free_allocation(a, *this);
  heap.clear();
  s->memory.unwatch(&memory);
  s->memory.unreserve(module_base);
  device->discharge(overhead_);
  error_.store(CUDA_SUCCESS);
}

void Context::fail(CUresult r, const char* why) {
  CUresult none = CUDA_SUCCESS;
  if (!error_.compare_exchange_strong(none, r)) return;
  const char* log = getenv("SIMGPU_LOG");
  if (log && *log == '1') say("context of device %d failed (%d): %s", device->ordinal, r, why);
}

bool Context::reaches(const Mapping& m, bool write) const {
  if (m.device < 0 && !m.by_access) return !write || !m.host_read_only;
  uint32_t mask = write ? m.writable : m.readable;
  if ((mask >> device->ordinal & 1) != 0) return true;
  return m.peer && (peers.load(std::memory_order_relaxed) >> m.device & 1) != 0;
}

CUresult Context::synchronize() {
  struct Pending {
    Ref<Stream> stream;  // null: it is being deleted
    Point last;
  };
  std::vector<Pending> pending;
  {
    Lock lock(order);
    for (Stream* st : streams) {
      Point last = st->last();
      if (last.reached()) continue;
      pending.push_back({Ref<Stream>::of_alive(st), std::move(last)});
    }
  }
  for (Pending& p : pending) {
    if (p.stream)
      p.stream->wait(p.last.number);
    else
      p.last.timeline->wait(p.last.number);
  }
  pending.clear();
  flush_output();
  return active() ? error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void Context::flush_output() {
  std::vector<char> text, failed;
  {
    Lock lock(output_mutex);
    text.swap(output);
    failed.swap(errors);
  }
  if (!text.empty()) fwrite(text.data(), 1, text.size(), stdout);
  if (!failed.empty()) fwrite(failed.data(), 1, failed.size(), stderr);
}

Ref<Context> context_of(CUcontext handle) {
  State* s = state();
  if (!s) return {};
  Ref<Context> c = s->handles.get<Context>(handle);
  if (c) return c;
  Ref<GreenAlias> alias = s->handles.get<GreenAlias>(handle);
  return alias ? alias->green->primary : Ref<Context>();
}

CUresult current(Ref<Context>* out, bool tolerate_error) {
  ThreadState* t = thread();
  if (t->stack.empty() || !t->stack.back().context) return CUDA_ERROR_INVALID_CONTEXT;
  const ThreadState::Entry& top = t->stack.back();
  Ref<Context> c = state()->handles.get<Context>(top.context);
  if (!c || !c->active() || (!c->primary && c->id != top.id))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (top.green && !state()->handles.contains(top.green, Kind::kGreenAlias))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = std::move(c);
  return tolerate_error ? CUDA_SUCCESS : (*out)->error();
}

namespace {

ThreadState::Entry entry_of(const Context& c) { return {const_cast<Context*>(&c), c.id}; }

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_of(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto c = Ref<Context>::adopt(new Context(device, flags, false));
  CUresult r = c->activate();
  if (r != CUDA_SUCCESS) return r;
  state()->handles.add(c.get());
  c->retain();  // the handle's
  thread()->stack.push_back(entry_of(*c));
  *out = c->handle();
  return CUDA_SUCCESS;
}

// The entry on a thread's context stack for a handle of either kind.
CUresult usable(CUcontext handle, ThreadState::Entry* out) {
  Ref<Context> c = context_of(handle);
  if (!c) return CUDA_ERROR_INVALID_CONTEXT;
  *out = entry_of(*c);
  if (handle != c->handle()) out->green = handle;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult retain_primary(Device& d, Ref<Context>* out) {
  Lock lock(state()->contexts_mutex);
  if (!d.primary) {
    d.primary = Ref<Context>::adopt(new Context(&d, d.primary_flags, true));
    state()->handles.add(d.primary.get());
  }
  if (!d.primary->active()) {
    d.primary->flags = d.primary_flags;
    if (CUresult r = d.primary->activate(); r != CUDA_SUCCESS) return r;
  }
  ++d.primary_retained;
  *out = d.primary;
  return CUDA_SUCCESS;
}

CUresult release_primary(Device& d) {
  Lock lock(state()->contexts_mutex);
  if (d.primary_retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--d.primary_retained == 0 && d.primary->active()) d.primary->deactivate();
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  ENTER(cuCtxCreate_v2);
  return create(out, flags, device);
}

SIMGPU_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int affinities, unsigned flags,
                          CUdevice device) {
  ENTER(cuCtxCreate_v3);
  if (affinities != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, device);
}

SIMGPU_API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags,
                          CUdevice device) {
  ENTER(cuCtxCreate_v4);
  if (params && params->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params && params->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device);
}

SIMGPU_API cuCtxDestroy_v2(CUcontext handle) {
  ENTER(cuCtxDestroy_v2);
  Ref<Context> c = context_of(handle);
  if (!c || c->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (!state()->handles.remove(c.get())) return CUDA_ERROR_INVALID_CONTEXT;
  c->deactivate();
  ThreadState* t = thread();
  if (!t->stack.empty() && t->stack.back().context == c.get()) t->stack.pop_back();
  c->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

SIMGPU_API cuCtxPushCurrent_v2(CUcontext handle) {
  SIMGPU_ENTER_WITH("cuCtxPushCurrent_v2", kInitialised | kCallbackAllowed);
  ThreadState::Entry entry = {};
  if (CUresult r = usable(handle, &entry); r != CUDA_SUCCESS) return r;
  thread()->stack.push_back(entry);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

SIMGPU_API cuCtxPopCurrent_v2(CUcontext* out) {
  SIMGPU_ENTER_WITH("cuCtxPopCurrent_v2", kInitialised | kCallbackAllowed);
  ThreadState* t = thread();
  if (t->stack.empty() || !t->stack.back().context) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = t->stack.back().handle();
  t->stack.pop_back();
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }

SIMGPU_API cuCtxSetCurrent(CUcontext handle) {
  SIMGPU_ENTER_WITH("cuCtxSetCurrent", kInitialised | kCallbackAllowed);
  ThreadState* t = thread();
  if (!handle) {
    if (!t->stack.empty()) t->stack.pop_back();
    return CUDA_SUCCESS;
  }
  ThreadState::Entry entry = {};
  if (CUresult r = usable(handle, &entry); r != CUDA_SUCCESS) return r;
  if (t->stack.empty()) t->stack.push_back({});
  t->stack.back() = entry;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetCurrent(CUcontext* out) {
  SIMGPU_ENTER_WITH("cuCtxGetCurrent", kInitialised | kCallbackAllowed);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  ThreadState* t = thread();
  *out = t->stack.empty() || !t->stack.back().context ? nullptr : t->stack.back().handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetDevice(CUdevice* out) {
  ENTER(cuCtxGetDevice);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  if (CUresult r = current(&c, true); r != CUDA_SUCCESS) return r;
  *out = c->device->ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  ENTER(cuCtxGetDevice_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  if (!handle) {
    if (CUresult r = current(&c, true); r != CUDA_SUCCESS) return r;
  } else {
    c = context_of(handle);
    if (!c) return CUDA_ERROR_INVALID_CONTEXT;
  }
  *out = c->device->ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetFlags(unsigned* out) {
  ENTER(cuCtxGetFlags);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  *out = c->flags;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxSetFlags(unsigned flags) {
  ENTER(cuCtxSetFlags);
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  c->flags = flags;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetId(CUcontext handle, unsigned long long* out) {
  ENTER(cuCtxGetId);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  if (!handle) {
    if (CUresult r = current(&c, true); r != CUDA_SUCCESS) return r;
  } else {
    c = context_of(handle);
    if (!c || !c->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *out = c->id;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  ENTER(cuCtxGetApiVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  if (handle && !context_of(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  return c->synchronize();
}

SIMGPU_API cuCtxSynchronize_v2(CUcontext handle) {
  ENTER(cuCtxSynchronize_v2);
  if (!handle) return cuCtxSynchronize();
  Ref<Context> c = context_of(handle);
  if (!c) return CUDA_ERROR_INVALID_CONTEXT;
  if (!c->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  return c->synchronize();
}

SIMGPU_API cuCtxGetLimit(size_t* value, CUlimit limit) {
  ENTER(cuCtxGetLimit);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  Lock lock(c->mutex);
  *value = c->limits[limit];
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxSetLimit(CUlimit limit, size_t value) {
  ENTER(cuCtxSetLimit);
  CURRENT(c);
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE && value > 512 * kKiB) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(c->mutex);
  c->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetCacheConfig(CUfunc_cache* out) {
  ENTER(cuCtxGetCacheConfig);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  *out = c->cache_config;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxSetCacheConfig(CUfunc_cache config) {
  ENTER(cuCtxSetCacheConfig);
  if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  c->cache_config = config;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetSharedMemConfig(CUsharedconfig* out) {
  ENTER(cuCtxGetSharedMemConfig);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  *out = c->shared_config;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
  ENTER(cuCtxSetSharedMemConfig);
  if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  return CUDA_SUCCESS;  // a hint that current devices ignore, and the query shows it
}

SIMGPU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  CURRENT(c);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxResetPersistingL2Cache(void) {
  ENTER(cuCtxResetPersistingL2Cache);
  CURRENT(c);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  ENTER(cuCtxGetExecAffinity);
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

SIMGPU_API cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  ENTER(cuCtxEnablePeerAccess);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Ref<Context> peer = context_of(handle);
  if (!peer || !peer->active() || peer.get() == c.get()) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == c->device) return CUDA_ERROR_INVALID_DEVICE;
  uint32_t bit = 1u << peer->device->ordinal;
  if ((c->peers.fetch_or(bit) & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  c->memory.epoch.fetch_add(1);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxDisablePeerAccess(CUcontext handle) {
  ENTER(cuCtxDisablePeerAccess);
  CURRENT(c);
  Ref<Context> peer = context_of(handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  uint32_t bit = 1u << peer->device->ordinal;
  if ((c->peers.fetch_and(~bit) & bit) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  c->memory.epoch.fetch_add(1);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Device* d = device_of(ordinal);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  Ref<Context> c;
  if (CUresult r = retain_primary(*d, &c); r != CUDA_SUCCESS) return r;
  *out = c->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  Device* d = device_of(ordinal);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  return release_primary(*d);
}

SIMGPU_API cuDevicePrimaryCtxRelease(CUdevice d) { return cuDevicePrimaryCtxRelease_v2(d); }

SIMGPU_API cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  ENTER(cuDevicePrimaryCtxReset_v2);
  Device* d = device_of(ordinal);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(state()->contexts_mutex);
  if (d->primary && d->primary->active()) d->primary->deactivate();
  return CUDA_SUCCESS;
}

SIMGPU_API cuDevicePrimaryCtxReset(CUdevice d) { return cuDevicePrimaryCtxReset_v2(d); }

SIMGPU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  ENTER(cuDevicePrimaryCtxSetFlags_v2);
  Device* d = device_of(ordinal);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state()->contexts_mutex);
  d->primary_flags = flags;
  if (d->primary) d->primary->flags = flags;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(d, flags);
}

SIMGPU_API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  ENTER(cuDevicePrimaryCtxGetState);
  Device* d = device_of(ordinal);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state()->contexts_mutex);
  *flags = d->primary_flags;
  *active = d->primary && d->primary->active();
  return CUDA_SUCCESS;
}
