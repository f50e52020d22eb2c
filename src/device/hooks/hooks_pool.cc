// Stream-ordered memory. Pool handles are the driver's; the memory comes from the arena. A free
// takes effect in stream order: an event marks the place, and the memory is taken up again by a
// later allocation on the same stream at once, by others when the event is done.
#include "device/base/call_sites.h"
#include "device/base/lock_order.h"
#include "device/capture/idle.h"
#include "device/hooks/hooks.h"
#include "device/sharing/ipc.h"
#include "intercept/gate/refuse.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {

// A pool whose memory is not plain device memory of this process stays the driver's.
PoolObject* know_pool(CUmemoryPool pool, int device, bool standard) {
  uint64_t name = new_name(Kind::kPool, pool);
  MutexLock guard(registry().lock);
  if (auto* known = registry().find<PoolObject>(ObjectType::kPool, name)) return known;
  auto* fresh = registry().add<PoolObject>(ObjectType::kPool, name, 0);
  if (!fresh) return nullptr;
  fresh->device = device;
  fresh->standard = standard;
  return fresh;
}

namespace {

enum : uint64_t { kInUse = 0, kFreed = 1, kCached = 2 };  // Allocation::ready

struct Pending {
  uint64_t address, size, pool, stream;  // size: in units, rounded up
  uint64_t bytes;  // as asked for: counted as used until the free takes effect
  int device;      // -1: of another process's pool
  CUevent done;    // null: done already
  uint32_t generation;
};

struct Pools {
  Mutex lock{kPoolLock};
  Vector<Pending> pending;
  Vector<Pending> cached;  // finished, kept for the pool (release threshold)
};

uint64_t round_up(uint64_t bytes) { return (bytes + kUnitBytes - 1) & ~(kUnitBytes - 1); }

Pools& pools() {
  static Pools* instance;
  return made_once(&instance);
}

// The registry's record of a pool, made when first seen (default pools are never created by the
// application).
PoolObject* pool_object(uint64_t name) {
  return registry().find<PoolObject>(ObjectType::kPool, name);
}

uint64_t pool_threshold(uint64_t name) {
  MutexLock guard(registry().lock);
  PoolObject* pool = pool_object(name);
  return pool ? pool->threshold : 0;
}

void count_used(uint64_t name, int64_t change) {
  MutexLock guard(registry().lock);
  PoolObject* pool = pool_object(name);
  if (!pool) return;
  pool->used += static_cast<uint64_t>(change);
  if (pool->used > pool->used_high) pool->used_high = pool->used;
}

// Kept by the pool without being in use. (What waits for its stream still counts as used.)
uint64_t idle_bytes(uint64_t pool) {
  uint64_t total = 0;
  for (const Pending& p : pools().cached)
    if (p.pool == pool) total += p.size;
  return total;
}

void note_reserved(uint64_t name) {
  uint64_t idle = idle_bytes(name);
  MutexLock guard(registry().lock);
  PoolObject* pool = pool_object(name);
  if (pool && pool->used + idle > pool->reserved_high) pool->reserved_high = pool->used + idle;
}

void give_back(const Pending& p) {
  if (p.device < 0) return ipc_free_from_pool(p.address);
  DeviceMemory* memory = device_memory(p.device);
  MutexLock guard(memory->lock);
  if (Allocation* a = memory->arena.starting(p.address)) memory->arena.free(a);
}

void mark(const Pending& p, uint64_t state) {
  if (p.device < 0) return;
  DeviceMemory* memory = device_memory(p.device);
  MutexLock guard(memory->lock);
  if (Allocation* a = memory->arena.starting(p.address)) a->ready = state;
}

// Pools lock held. Gives memory that a pool caches back to the arena, while more() says so.
template <typename More>
void release_cached(uint64_t pool, More more) {
  auto& cached = pools().cached;
  for (size_t i = 0; i < cached.size() && more();) {
    if (cached[i].pool != pool) {
      ++i;
      continue;
    }
    give_back(cached[i]);
    cached.swap_remove(i);
  }
}

// Pools lock held. Finished frees go to the pool's cache as far as its threshold allows, else back
// to the arena.
void reclaim_locked(bool all) {
  auto& pending = pools().pending;
  auto& cached = pools().cached;
  for (size_t i = 0; i < pending.size();) {
    Pending p = pending[i];
    if (p.done && p.generation == generation()) {
      if (real().cuEventQuery(p.done) == CUDA_ERROR_NOT_READY) {
        ++i;
        continue;
      }
      real().cuEventDestroy_v2(p.done);
    }
    p.done = nullptr;
    pending.remove_at(i);
    if (p.pool) count_used(p.pool, -static_cast<int64_t>(p.bytes));
    uint64_t held = 0;
    for (const Pending& c : cached)
      if (c.pool == p.pool) held += c.size;
    if (!all && p.device >= 0 && held + p.size <= pool_threshold(p.pool) && cached.push(p))
      mark(p, kCached);
    else
      give_back(p);
  }
  if (!all) return;
  for (const Pending& c : cached) give_back(c);
  cached.clear();
}

bool reuse_locked(uint64_t bytes, uint64_t pool, uint64_t stream, CUdeviceptr* out) {
  auto take = [&](Vector<Pending>& from, bool same_stream) {
    for (size_t i = 0; i < from.size(); ++i) {
      Pending& p = from[i];
      if (p.size != round_up(bytes) || p.pool != pool || (same_stream && p.stream != stream))
        continue;
      DeviceMemory* memory = device_memory(p.device);
      MutexLock guard(memory->lock);
      Allocation* a = memory->arena.starting(p.address);
      if (!a) continue;
      a->ready = kInUse;
      memory->arena.reuse(a, bytes);
      a->site = call_site();
      if (p.done && p.generation == generation()) real().cuEventDestroy_v2(p.done);
      *out = p.address;
      if (same_stream) count_used(pool, -static_cast<int64_t>(p.bytes));
      from.remove_at(i);
      return true;
    }
    return false;
  };
  return take(pools().cached, false) || take(pools().pending, true);
}

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return __atomic_load_n(&captures_active, __ATOMIC_RELAXED) &&
         real().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, int device,
                        CUstream stream, uint64_t stream_name) {
  if (CUresult result = real().cuStreamQuery(stream);
      result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    return result;
  uint64_t name = name_from(Kind::kPool, pool);
  {
    MutexLock guard(pools().lock);
    if (!pools().pending.empty()) reclaim_locked(false);
    if (reuse_locked(bytes, name, stream_name, out)) {
      count_used(name, static_cast<int64_t>(bytes));
      return CUDA_SUCCESS;
    }
  }
  CUresult result = take_memory(device, current_context_name(), name, bytes, out);
  if (result != CUDA_SUCCESS) return result;
  count_used(name, static_cast<int64_t>(bytes));
  MutexLock guard(pools().lock);
  note_reserved(name);
  return CUDA_SUCCESS;
}

CUresult device_of_stream(CUstream stream, int* device) {
  CUdevice current;
  CUcontext context = nullptr;
  if (bits(stream) > 2 && real().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context) {
    WithContext with(context);
    if (with && real().cuCtxGetDevice(&current) == CUDA_SUCCESS) {
      *device = current;
      return CUDA_SUCCESS;
    }
  }
  CUresult result = real().cuCtxGetDevice(&current);
  *device = current;
  return result;
}

using AllocAsync = CUresult (*)(CUdeviceptr*, size_t, CUstream);
using AllocFromPool = CUresult (*)(CUdeviceptr*, size_t, CUmemoryPool, CUstream);

// What `stream` means for ordering: NULL is the legacy or the calling thread's stream.
uint64_t stream_key(CUstream stream, bool per_thread) {
  if (bits(stream) > 2) return name_from(Kind::kStream, stream);
  bool thread_stream = stream == CU_STREAM_PER_THREAD || (!stream && per_thread);
  return thread_stream ? ~bits(this_thread_record()) : 1;
}

CUstream plain_stream(CUstream stream, bool per_thread) {
  if (stream) return stream;
  return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

CUresult alloc_async(CUdeviceptr* dptr, size_t bytes, CUstream stream, bool per_thread,
                     AllocAsync native) {
  if (!dptr || !bytes || is_capturing(plain_stream(stream, per_thread)))
    return native(dptr, bytes, stream);
  int device;
  if (CUresult result = device_of_stream(stream, &device)) return result;
  CUmemoryPool pool = nullptr;
  if (CUresult result = real().cuDeviceGetMemPool(&pool, device)) return result;
  PoolObject* known = know_pool(pool, device, true);
  DeviceMemory* memory = device_memory(device);
  if (!known || !memory || !memory->has_vmm) return native(dptr, bytes, stream);
  return allocate_async(dptr, bytes, pool, device, plain_stream(stream, per_thread),
                        stream_key(stream, per_thread));
}

CUresult alloc_from_pool(CUdeviceptr* dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                         bool per_thread, AllocFromPool native) {
  PoolObject* known = nullptr;
  int device = 0;
  {
    MutexLock guard(registry().lock);
    known = pool_object(name_from(Kind::kPool, pool));
    if (known) device = known->device;
    if (known && known->imported) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!dptr || !bytes || !known || is_capturing(plain_stream(stream, per_thread)))
    return native(dptr, bytes, pool, stream);
  return allocate_async(dptr, bytes, pool, device, plain_stream(stream, per_thread),
                        stream_key(stream, per_thread));
}

CUresult free_async(CUdeviceptr dptr, CUstream stream, bool per_thread,
                    CUresult (*native)(CUdeviceptr, CUstream)) {
  int device = dptr ? device_holding(dptr) : -1;
  if (device < 0 && !ipc_from_pool(dptr)) return native(dptr, stream);
  CUstream plain = plain_stream(stream, per_thread);
  if (is_capturing(plain)) return native(dptr, stream);
  Pending p = {};
  p.address = dptr;
  if (device >= 0) {
    DeviceMemory* memory = device_memory(device);
    MutexLock guard(memory->lock);
    Allocation* a = memory->arena.starting(dptr);
    if (!a || a->ready != kInUse) return CUDA_ERROR_INVALID_VALUE;
    p.bytes = a->size;
    p.size = round_up(a->size);
    p.pool = a->pool;
  }
  p.device = device;
  p.stream = stream_key(stream, per_thread);
  p.generation = generation();
  if (CUresult result = real().cuEventCreate(&p.done, CU_EVENT_DISABLE_TIMING)) return result;
  if (CUresult result = real().cuEventRecord(p.done, plain)) {
    real().cuEventDestroy_v2(p.done);
    return result;
  }
  mark(p, kFreed);
  MutexLock guard(pools().lock);
  reclaim_locked(false);
  if (!pools().pending.push(p)) return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_SUCCESS;
}

}  // namespace

bool free_pool_memory(CUdeviceptr address) {
  int device = device_holding(address);
  DeviceMemory* memory = device_memory(device);
  uint64_t size, pool;
  {
    MutexLock guard(memory->lock);
    Allocation* a = memory->arena.starting(address);
    if (!a || a->ready != kInUse) return false;
    size = a->size;
    pool = a->pool;
    memory->arena.free(a);
  }
  count_used(pool, -static_cast<int64_t>(size));
  return true;
}

void pools_reclaim(bool all) {
  MutexLock guard(pools().lock);
  if (pools().pending.empty() && (!all || pools().cached.empty())) return;
  reclaim_locked(all);
}

bool pools_finish_frees() {
  MutexLock guard(pools().lock);
  reclaim_locked(false);
  return pools().pending.empty();
}

}  // namespace device

using namespace device;

CUresult hook_cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return alloc_async(dptr, bytesize, hStream, false, real().cuMemAllocAsync);
}
CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return alloc_async(dptr, bytesize, hStream, true, real().cuMemAllocAsync_ptsz);
}
CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return alloc_from_pool(dptr, bytesize, pool, hStream, false, real().cuMemAllocFromPoolAsync);
}
CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                           CUstream hStream) {
  return alloc_from_pool(dptr, bytesize, pool, hStream, true, real().cuMemAllocFromPoolAsync_ptsz);
}
CUresult hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return free_async(dptr, hStream, false, real().cuMemFreeAsync);
}
CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async(dptr, hStream, true, real().cuMemFreeAsync_ptsz);
}

CUresult hook_cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  CUresult result = real().cuDeviceGetDefaultMemPool(pool_out, dev);
  if (result == CUDA_SUCCESS) know_pool(*pool_out, dev, true);
  return result;
}

CUresult hook_cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  CUresult result = real().cuDeviceGetMemPool(pool, dev);
  if (result != CUDA_SUCCESS) return result;
  CUmemoryPool standard = nullptr;
  bool is_standard =
      real().cuDeviceGetDefaultMemPool(&standard, dev) == CUDA_SUCCESS && standard == *pool;
  know_pool(*pool, dev, is_standard);
  return result;
}

CUresult hook_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  if (is_imported_pool(pool)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = real().cuDeviceSetMemPool(dev, pool);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = name_from(Kind::kPool, pool);
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kPool) continue;
    auto* p = static_cast<PoolObject*>(o);
    if (p->device == dev) p->current = p->name == name;
  }
  return result;
}

namespace {
// Pools by location: those of a device are what the calls above know.
bool is_device_pool(const CUmemLocation* location, CUmemAllocationType type) {
  return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
         type == CU_MEM_ALLOCATION_TYPE_PINNED;
}
CUresult foreign_pool(CUresult result) {
  if (result == CUDA_SUCCESS)
    registry().refuse("cuMemGetMemPool: a pool of host or managed memory is in use");
  return result;
}
}  // namespace

CUresult hook_cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                              CUmemoryPool pool) {
  if (is_device_pool(location, type)) return hook_cuDeviceSetMemPool(location->id, pool);
  return foreign_pool(real().cuMemSetMemPool(location, type, pool));
}
CUresult hook_cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                              CUmemAllocationType type) {
  if (is_device_pool(location, type)) return hook_cuDeviceGetMemPool(pool, location->id);
  return foreign_pool(real().cuMemGetMemPool(pool, location, type));
}
CUresult hook_cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                     CUmemAllocationType type) {
  if (is_device_pool(location, type)) return hook_cuDeviceGetDefaultMemPool(pool_out, location->id);
  return foreign_pool(real().cuMemGetDefaultMemPool(pool_out, location, type));
}

CUresult hook_cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  CUresult result = real().cuMemPoolCreate(pool, poolProps);
  if (result != CUDA_SUCCESS) return result;
  bool plain = poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
               poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!plain) {  // stays the driver's own
    registry().refuse("cuMemPoolCreate: a pool of host or managed memory is in use");
    return result;
  }
  PoolObject* known = know_pool(*pool, poolProps->location.id, false);
  if (known) known->properties = *poolProps;
  return result;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool) {
  uint64_t name = name_from(Kind::kPool, pool);
  CUresult result =
      registry().end(ObjectType::kPool, name, [&] { return real().cuMemPoolDestroy(pool); });
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(pools().lock);
  release_cached(name, [] { return true; });
  return result;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  CUresult result = real().cuMemPoolTrimTo(pool, minBytesToKeep);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = name_from(Kind::kPool, pool);
  MutexLock guard(pools().lock);
  reclaim_locked(false);
  release_cached(name, [&] { return idle_bytes(name) > minBytesToKeep; });
  return result;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  CUresult result = real().cuMemPoolSetAttribute(pool, attr, value);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  PoolObject* known = pool_object(name_from(Kind::kPool, pool));
  if (!known) return result;
  switch (static_cast<int>(attr)) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      __builtin_memcpy(&known->threshold, value, 8);
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      known->used_high = known->used;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      known->reserved_high = known->used;
      break;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      __builtin_memcpy(&known->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
                       4);
      break;
  }
  return result;
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  CUresult result = real().cuMemPoolGetAttribute(pool, attr, value);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = name_from(Kind::kPool, pool);
  MutexLock pools_guard(pools().lock);
  if (!pools().pending.empty()) reclaim_locked(false);
  uint64_t idle = idle_bytes(name);
  MutexLock guard(registry().lock);
  PoolObject* known = pool_object(name);
  if (!known) return result;
  uint64_t answer;
  switch (static_cast<int>(attr)) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      answer = known->used;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      answer = known->used_high;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      answer = known->used + idle;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      answer = known->reserved_high;
      break;
    default:
      return result;
  }
  __builtin_memcpy(value, &answer, sizeof answer);
  return result;
}

CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  CUresult result = real().cuMemPoolSetAccess(pool, map, count);
  if (result != CUDA_SUCCESS) return result;
  int owner;
  {
    MutexLock guard(registry().lock);
    PoolObject* known = pool_object(name_from(Kind::kPool, pool));
    if (!known) return result;
    owner = known->device;
    for (size_t i = 0; i < count; ++i)
      if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) known->readers.push(map[i].location.id);
  }
  // The arena is shared by all pools of the device: access is given, never taken away.
  for (size_t i = 0; i < count; ++i)
    if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) let_access(owner, map[i].location.id, true);
  return result;
}

CUresult hook_cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                 CUmemLocation* location) {
  return real().cuMemPoolGetAccess(flags, memPool, location);
}

}  // namespace gpuckpt
