// cuMemAlloc and friends, host memory, managed memory.
#include "driver/memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "driver/graph/graph_memory.h"
#include "driver/memory/pool.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

AddressSpace& space() { return state()->memory; }

// Memory of the host that kernels see at its own address.
void map_host(uint64_t address, uint64_t bytes, bool read_only) {
  Mapping m;
  m.begin = address;
  m.end = address + bytes;
  m.host = reinterpret_cast<uint8_t*>(address);
  m.host_read_only = read_only;
  space().map(std::move(m));
}

CUresult allocate(CUdeviceptr* out, uint64_t bytes) {
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  Allocation a;
  a.type = MemoryType::kDevice;
  a.context = c->id;
  a.context_handle = c->handle();
  CUresult r = c->heap.allocate(bytes, &a);
  if (r == CUDA_SUCCESS) *out = a.base;
  return r;
}

// Enters memory of the host that was mapped for an allocation of `bytes`.
void enter_mapped(Context& c, MemoryType type, void* p, uint64_t bytes, unsigned flags) {
  Allocation a;
  a.type = type;
  a.base = a.block = reinterpret_cast<uint64_t>(p);
  a.size = bytes;
  a.block_bytes = round_up(bytes, kPage);
  a.id = fresh_id();
  a.device = c.device->ordinal;
  a.context = c.id;
  a.context_handle = c.handle();
  a.flags = flags;
  space().add(a);
  map_host(a.base, a.block_bytes, false);
}

CUresult allocate_host(void** out, uint64_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!out || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  uint64_t size = round_up(bytes, kPage);
  void* p = map_somewhere(size, -1);
  if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
  enter_mapped(*c, MemoryType::kPinned, p, bytes, flags);
  *out = p;
  return CUDA_SUCCESS;
}

// Whether every page of [p, p+bytes) is mapped in this process.
bool host_range_exists(uint64_t p, uint64_t bytes) {
  uint64_t begin = round_down(p, kPage), end = round_up(p + bytes, kPage);
  return msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0 || errno != ENOMEM;
}

}  // namespace

void free_allocation(const Allocation& a, Context& owner) {
  if (a.imported) return free_imported(a);
  if (!space().remove(a.base, nullptr)) return;
  switch (a.type) {
    case MemoryType::kDevice:
      if (a.graph) break;  // the graph frees it
      if (a.pool) {
        static_cast<Pool*>(a.pool)->release_memory(a);
      } else {
        owner.heap.free(a);
      }
      break;
    case MemoryType::kPinned:
    case MemoryType::kManaged:
      space().unmap(a.block, a.block + a.block_bytes);
      munmap(reinterpret_cast<void*>(a.block), a.block_bytes);
      if (a.type == MemoryType::kManaged) device_of(a.device)->discharge(a.block_bytes);
      break;
    case MemoryType::kRegistered:
      space().unmap(a.base, a.base + a.size);
      break;
    case MemoryType::kVirtual:
    case MemoryType::kModule:
      break;
  }
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  ENTER(cuMemGetInfo_v2);
  CURRENT(c);
  uint64_t used = c->device->used();
  if (free_bytes) *free_bytes = used < c->device->total() ? c->device->total() - used : 0;
  if (total) *total = c->device->total();
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  ENTER(cuMemAlloc_v2);
  return allocate(out, bytes);
}

SIMGPU_API cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                              unsigned element) {
  ENTER(cuMemAllocPitch_v2);
  if (!pitch || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  uint64_t p = round_up(width, 512), bytes;
  if (__builtin_mul_overflow(p, height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = allocate(out, bytes);
  if (r == CUDA_SUCCESS) *pitch = p;
  return r;
}

SIMGPU_API cuMemFree_v2(CUdeviceptr address) {
  ENTER(cuMemFree_v2);
  CURRENT(c);
  if (address == 0) return CUDA_SUCCESS;
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  Allocation a;
  if (!space().allocation_at(address, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (a.variable || (a.type != MemoryType::kDevice && a.type != MemoryType::kManaged))
    return CUDA_ERROR_INVALID_VALUE;
  // Any context of the process may free; the memory belongs to the one that allocated it.
  Ref<Context> owner = a.context_handle ? context_of(a.context_handle) : c;
  if (!owner) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = owner->synchronize();
  if (r != CUDA_SUCCESS) return r;
  if (a.graph) return free_graph_memory(address);
  free_allocation(a, *owner);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  ENTER(cuMemGetAddressRange_v2);
  CURRENT(c);
  Allocation a;
  if (!space().allocation(address, &a)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = a.base;
  if (size) *size = a.size;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  ENTER(cuMemHostAlloc);
  return allocate_host(out, bytes, flags);
}

SIMGPU_API cuMemAllocHost_v2(void** out, size_t bytes) {
  ENTER(cuMemAllocHost_v2);
  return allocate_host(out, bytes, 0);
}

SIMGPU_API cuMemFreeHost(void* p) {
  ENTER(cuMemFreeHost);
  CURRENT(c);
  if (!p) return CUDA_SUCCESS;
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  Allocation a;
  if (!space().allocation_at(reinterpret_cast<uint64_t>(p), &a) || a.type != MemoryType::kPinned)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> owner = context_of(a.context_handle);
  if (!owner) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = owner->synchronize(); r != CUDA_SUCCESS) return r;
  free_allocation(a, *owner);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemHostRegister_v2(void* p, size_t bytes, unsigned flags) {
  ENTER(cuMemHostRegister_v2);
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (!p || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  auto at = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (space().allocation_overlaps(at, at + bytes, &a))
    return a.type == MemoryType::kRegistered || a.type == MemoryType::kPinned
               ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
               : CUDA_ERROR_INVALID_VALUE;
  if (space().classify(at, bytes) != AddressSpace::Place::kPageable ||
      !host_range_exists(at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  a = Allocation{};
  a.type = MemoryType::kRegistered;
  a.base = a.block = at;
  a.size = a.block_bytes = bytes;
  a.id = fresh_id();
  a.device = c->device->ordinal;
  a.context = c->id;
  a.context_handle = c->handle();
  a.flags = flags;
  space().add(a);
  map_host(at, bytes, (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemHostUnregister(void* p) {
  ENTER(cuMemHostUnregister);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  Allocation a;
  if (!space().allocation_at(reinterpret_cast<uint64_t>(p), &a) ||
      a.type != MemoryType::kRegistered)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  Ref<Context> owner = context_of(a.context_handle);
  if (!owner) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = owner->synchronize(); r != CUDA_SUCCESS) return r;
  free_allocation(a, *owner);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned flags) {
  ENTER(cuMemHostGetDevicePointer_v2);
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Allocation a;
  auto at = reinterpret_cast<uint64_t>(p);
  if (!space().allocation(at, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (a.type != MemoryType::kPinned && a.type != MemoryType::kRegistered &&
      a.type != MemoryType::kManaged)
    return CUDA_ERROR_INVALID_VALUE;
  *out = at;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemHostGetFlags(unsigned* flags, void* p) {
  ENTER(cuMemHostGetFlags);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Allocation a;
  if (!space().allocation(reinterpret_cast<uint64_t>(p), &a)) return CUDA_ERROR_INVALID_VALUE;
  if (a.type != MemoryType::kPinned && a.type != MemoryType::kRegistered)
    return CUDA_ERROR_INVALID_VALUE;
  // With unified addressing all pinned memory is portable and mapped, and its flags say so.
  *flags = a.flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  ENTER(cuMemAllocManaged);
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  uint64_t size = round_up(bytes, kPage);
  if (!c->device->charge(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* p = map_somewhere(size, -1);
  if (!p) {
    c->device->discharge(size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  enter_mapped(*c, MemoryType::kManaged, p, bytes, flags);
  *out = reinterpret_cast<uint64_t>(p);
  return CUDA_SUCCESS;
}
