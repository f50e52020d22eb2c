#include "driver/memory/pool.h"

#include <string.h>

#include "driver/graph/graph.h"
#include "driver/memory/memory.h"
#include "driver/stream/work.h"

namespace simgpu {

CUresult Pool::allocate(uint64_t bytes, Allocation* a) {
  if (imported) return CUDA_ERROR_INVALID_VALUE;
  a->type = MemoryType::kDevice;
  a->pool = this;
  CUresult r = heap_.allocate(bytes, a);
  if (r != CUDA_SUCCESS) return r;
  retain();  // the allocation's
  uint64_t held = heap_.reserved();
  Lock lock(mutex);
  used += bytes;
  if (used > used_high) used_high = used;
  if (held > reserved_high) reserved_high = held;
  if (access != 0) {
    for (int d = 0; d < 8; ++d)
      if ((access >> d & 1) != 0) state()->memory.grant(a->block, d);
  }
  return CUDA_SUCCESS;
}

void Pool::set_access(int ordinal, bool on) {
  Lock lock(mutex);
  access = on ? access | 1u << ordinal : access & ~(1u << ordinal);
  heap_.set_access(ordinal, on);
}

void Pool::release_memory(const Allocation& a) {
  heap_.free(a);
  {
    Lock lock(mutex);
    used -= a.size;
  }
  release();
}

void make_default_pool(Device* d) {
  d->default_pool = Ref<Pool>::adopt(new Pool(d, true));
  state()->handles.add(d->default_pool.get());
  d->current_pool = d->default_pool;
}

namespace {

CUresult find(CUmemoryPool handle, Ref<Pool>* out) {
  *out = state()->handles.get<Pool>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// An allocation node; the pool's properties are the node's.
CUresult capture_allocation(CUdeviceptr* out, uint64_t bytes, const Pool& pool, Stream& s) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAccessDesc access[8];
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {pool.device->ordinal}};
  params.bytesize = bytes;
  params.accessDescs = access;
  for (int d = 0; d < 8; ++d)
    if ((pool.access >> d & 1) != 0)
      access[params.accessDescCount++] = {{CU_MEM_LOCATION_TYPE_DEVICE, {d}},
                                          CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Ref<GraphMemory> memory = GraphMemory::make(s.context, params);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  auto action = Ref<AllocAction>::adopt(new AllocAction(memory));
  CUresult r = enqueue(s, Ref<Action>(action.get()));
  if (r == CUDA_SUCCESS) *out = action->memory->address;
  return r;
}

CUresult allocate_async(CUdeviceptr* out, uint64_t bytes, CUmemoryPool handle, CUstream stream) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  Ref<Pool> pool;
  if (!handle) {
    Lock lock(state()->contexts_mutex);
    pool = s->context->device->current_pool;
  } else if (CUresult r = find(handle, &pool); r != CUDA_SUCCESS) {
    return r;
  }
  if (is_capturing(*s)) return capture_allocation(out, bytes, *pool, *s);
  if (CUresult r = refuse_capture(*s); r != CUDA_SUCCESS) return r;
  if (bytes == 0) {
    *out = 0;
    return CUDA_SUCCESS;
  }
  Allocation a;
  CUresult r = pool->allocate(bytes, &a);
  if (r != CUDA_SUCCESS) return r;
  *out = a.base;
  return CUDA_SUCCESS;
}

CUresult device_at(const CUmemLocation* l, Device** d) {
  if (!l) return CUDA_ERROR_INVALID_VALUE;
  if (l->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;  // pools of the host
  *d = device_of(l->id);
  return *d ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  ENTER(cuMemAllocAsync);
  return allocate_async(out, bytes, nullptr, stream);
}

SIMGPU_API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                   CUstream stream) {
  ENTER(cuMemAllocFromPoolAsync);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  return allocate_async(out, bytes, pool, stream);
}

SIMGPU_API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  ENTER(cuMemFreeAsync);
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (address == 0) return CUDA_SUCCESS;
  if (is_capturing(*s)) {
    Ref<GraphMemory> memory = graph_memory_at(address);
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(*s, Ref<Action>::adopt(new FreeAction(memory->context, address)));
  }
  Allocation a;
  if (!state()->memory.allocation_at(address, &a) || a.type != MemoryType::kDevice || a.freeing)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = refuse_capture(*s); r != CUDA_SUCCESS) return r;
  if (a.graph) return free_graph_memory(address);
  state()->memory.update(address, [](Allocation& x) { x.freeing = true; });
  uint64_t id = a.id;
  s->submit(new_work("free", [=](Context& c) {
    Allocation now;
    if (!state()->memory.allocation_at(address, &now) || now.id != id) return CUDA_SUCCESS;
    Ref<Context> owner = now.context_handle ? context_of(now.context_handle) : Ref<Context>(&c);
    if (owner) free_allocation(now, *owner);
    return CUDA_SUCCESS;
  }));
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  ENTER(cuMemPoolCreate);
  if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  Device* d;
  if (CUresult r = device_at(&props->location, &d); r != CUDA_SUCCESS) return r;
  auto* p = new Pool(d, false);
  p->exportable = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  state()->handles.add(p);
  *out = reinterpret_cast<CUmemoryPool>(p);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolDestroy(CUmemoryPool handle) {
  ENTER(cuMemPoolDestroy);
  Ref<Pool> p;
  if (CUresult r = find(handle, &p); r != CUDA_SUCCESS) return r;
  if (p->standard) return CUDA_ERROR_NOT_PERMITTED;
  Lock lock(state()->contexts_mutex);
  if (!state()->handles.remove(p.get())) return CUDA_ERROR_INVALID_HANDLE;
  if (p->device->current_pool.get() == p.get()) p->device->current_pool = p->device->default_pool;
  p->release();  // its allocations keep it
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  ENTER(cuMemPoolTrimTo);
  Ref<Pool> p;
  return find(handle, &p);  // nothing to trim: free blocks are returned to the device at once
}

SIMGPU_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute id, void* value) {
  ENTER(cuMemPoolGetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Ref<Pool> p;
  if (CUresult r = find(handle, &p); r != CUDA_SUCCESS) return r;
  uint64_t held = p->reserved();
  Lock lock(p->mutex);
  auto* number = static_cast<int*>(value);
  auto* bytes = static_cast<cuuint64_t*>(value);
  switch (static_cast<int>(id)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *number = p->reuse_event;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *number = p->reuse_opportunistic;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *number = p->reuse_internal;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *bytes = p->release_threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *bytes = held;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *bytes = p->reserved_high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *bytes = p->used;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *bytes = p->used_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute id, void* value) {
  ENTER(cuMemPoolSetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Ref<Pool> p;
  if (CUresult r = find(handle, &p); r != CUDA_SUCCESS) return r;
  uint64_t held = p->reserved();
  Lock lock(p->mutex);
  int number = *static_cast<int*>(value);
  switch (static_cast<int>(id)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      p->reuse_event = number != 0;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      p->reuse_opportunistic = number != 0;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      p->reuse_internal = number != 0;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      p->release_threshold = *static_cast<cuuint64_t*>(value);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      if (id == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        p->used_high = p->used;
      } else {
        p->reserved_high = held;
      }
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  ENTER(cuMemPoolSetAccess);
  if (!map && count != 0) return CUDA_ERROR_INVALID_VALUE;
  Ref<Pool> p;
  if (CUresult r = find(handle, &p); r != CUDA_SUCCESS) return r;
  for (size_t i = 0; i < count; ++i) {
    Device* d;
    if (CUresult r = device_at(&map[i].location, &d); r != CUDA_SUCCESS) return r;
    bool on = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (d == p->device) {
      if (!on) return CUDA_ERROR_INVALID_DEVICE;
      continue;
    }
    p->set_access(d->ordinal, on);
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                              CUmemLocation* location) {
  ENTER(cuMemPoolGetAccess);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  Ref<Pool> p;
  if (CUresult r = find(handle, &p); r != CUDA_SUCCESS) return r;
  Device* d;
  if (CUresult r = device_at(location, &d); r != CUDA_SUCCESS) return r;
  Lock lock(p->mutex);
  bool on = d == p->device || (p->access >> d->ordinal & 1) != 0;
  *flags = on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) {
  ENTER(cuDeviceGetDefaultMemPool);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Device* d = device_of(dev);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  *out = reinterpret_cast<CUmemoryPool>(d->default_pool.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) {
  ENTER(cuDeviceGetMemPool);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Device* d = device_of(dev);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(state()->contexts_mutex);
  *out = reinterpret_cast<CUmemoryPool>(d->current_pool.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
  ENTER(cuDeviceSetMemPool);
  Device* d = device_of(dev);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  Ref<Pool> p;
  if (CUresult r = find(handle, &p); r != CUDA_SUCCESS) return r;
  if (p->imported) return CUDA_ERROR_INVALID_VALUE;
  if (p->device != d) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(state()->contexts_mutex);
  d->current_pool = p;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location,
                                  CUmemAllocationType type) {
  ENTER(cuMemGetDefaultMemPool);
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  Device* d;
  if (CUresult r = device_at(location, &d); r != CUDA_SUCCESS) return r;
  return cuDeviceGetDefaultMemPool(out, d->ordinal);
}

SIMGPU_API cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  ENTER(cuMemGetMemPool);
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  Device* d;
  if (CUresult r = device_at(location, &d); r != CUDA_SUCCESS) return r;
  return cuDeviceGetMemPool(out, d->ordinal);
}

SIMGPU_API cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  ENTER(cuMemSetMemPool);
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  Device* d;
  if (CUresult r = device_at(location, &d); r != CUDA_SUCCESS) return r;
  return cuDeviceSetMemPool(d->ordinal, pool);
}
