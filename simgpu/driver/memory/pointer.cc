// What is behind a pointer, and advice about managed memory.
#include <string.h>

#include "driver/memory/memory.h"
#include "driver/memory/pool.h"
#include "driver/stream/work.h"

namespace simgpu {
namespace {

AddressSpace& space() { return state()->memory; }

bool on_host(const Allocation& a) {
  return a.type == MemoryType::kPinned || a.type == MemoryType::kRegistered;
}

template <class T>
CUresult give(void* out, T value) {
  memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult attribute(void* out, CUpointer_attribute id, CUdeviceptr at) {
  Allocation a;
  if (!space().allocation(at, &a)) {
    // The driver does not know the address: it answers only the questions that fit any address.
    uint64_t begin, end;
    bool ours = space().reserved(at, &begin, &end);
    if (id == CU_POINTER_ATTRIBUTE_MAPPED && ours) return give(out, 0);
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (static_cast<int>(id)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(out, a.context_handle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(out,
                  static_cast<unsigned>(on_host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(out, at);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!on_host(a) && a.type != MemoryType::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return give(out, reinterpret_cast<void*>(at));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give(out, static_cast<int>(a.sync_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give(out, static_cast<unsigned long long>(a.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(out, static_cast<int>(a.type == MemoryType::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(out, a.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give(out, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(out, a.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(out, static_cast<size_t>(a.size));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(out, static_cast<unsigned long long>(0));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return give(out, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give(out, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(out, reinterpret_cast<CUmemoryPool>(a.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give(out, static_cast<size_t>(a.size));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(out, a.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give(out, static_cast<unsigned long long>(a.id));
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return give(out, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

size_t width_of(CUpointer_attribute id) {
  switch (static_cast<int>(id)) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return 4;
    default:
      return 8;
  }
}

bool managed(CUdeviceptr at, size_t bytes, Allocation* a) {
  return bytes != 0 && space().allocation(at, a) && a->type == MemoryType::kManaged &&
         at + bytes <= a->base + a->size;
}

// Location::id, CU_DEVICE_CPU for the host; false for what does not exist.
bool place_of(const CUmemLocation& l, int* device) {
  if (l.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    *device = l.id;
    return device_of(l.id) != nullptr;
  }
  *device = CU_DEVICE_CPU;
  return l.type == CU_MEM_LOCATION_TYPE_HOST || l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, int device) {
  Allocation a;
  if (!managed(at, bytes, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  bool known = device == CU_DEVICE_CPU || device_of(device);
  bool needs_device = advice != CU_MEM_ADVISE_SET_READ_MOSTLY &&
                      advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                      advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  if (needs_device && !known) return CUDA_ERROR_INVALID_DEVICE;
  uint32_t bit = device >= 0 && device < 8 ? 1u << device : 1u << 31;
  space().update(at, [&](Allocation& x) {
    switch (static_cast<int>(advice)) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
        x.read_mostly = 1;
        break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        x.read_mostly = 0;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        x.preferred = device;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        x.preferred = CU_DEVICE_INVALID;
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        x.accessed_by |= bit;
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        x.accessed_by &= ~bit;
        break;
    }
  });
  return CUDA_SUCCESS;
}

CUresult prefetch(CUdeviceptr at, size_t bytes, int device, CUstream stream) {
  Allocation a;
  if (!managed(at, bytes, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (device != CU_DEVICE_CPU && !device_of(device)) return CUDA_ERROR_INVALID_DEVICE;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  return enqueue(*s, new_work("prefetch", [=](Context&) {
    space().update(at, [=](Allocation& x) { x.last_prefetch = device; });
    return CUDA_SUCCESS;
  }));
}

// The common part of the calls for many ranges. Discarded memory keeps its contents, as CUDA
// permits: it may hold any value.
struct Ranges {
  const CUdeviceptr* at;
  const size_t* bytes;
  size_t count;
};
CUresult check_ranges(const Ranges& r, unsigned long long flags, CUstream stream) {
  if (r.count == 0 || !r.at || !r.bytes || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < r.count; ++i) {
    Allocation a;
    if (!managed(r.at[i], r.bytes[i], &a)) return CUDA_ERROR_INVALID_VALUE;
  }
  Ref<Stream> s;
  if (CUresult e = resolve(stream, &s); e != CUDA_SUCCESS) return e;
  return s->role == Stream::Role::kLegacy ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// `places` go by the index of the first range that each counts for.
CUresult prefetch_ranges(const Ranges& r, const CUmemLocation* places, const size_t* firsts,
                         size_t place_count, unsigned long long flags, CUstream stream) {
  if (CUresult e = check_ranges(r, flags, stream); e != CUDA_SUCCESS) return e;
  if (!places || !firsts || place_count == 0 || place_count > r.count || firsts[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t k = 0; k < place_count; ++k) {
    int device;
    if (k != 0 && (firsts[k] <= firsts[k - 1] || firsts[k] >= r.count))
      return CUDA_ERROR_INVALID_VALUE;
    if (!place_of(places[k], &device)) return CUDA_ERROR_INVALID_DEVICE;
  }
  size_t place = 0;
  for (size_t i = 0; i < r.count; ++i) {
    if (place + 1 < place_count && firsts[place + 1] == i) ++place;
    int device = 0;
    place_of(places[place], &device);
    if (CUresult e = prefetch(r.at[i], r.bytes[i], device, stream); e != CUDA_SUCCESS) return e;
  }
  return CUDA_SUCCESS;
}

CUresult range_attribute(void* data, size_t size, CUmem_range_attribute id, CUdeviceptr at,
                         size_t bytes) {
  if (!data || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation a;
  if (!managed(at, bytes, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (id == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    auto* out = static_cast<int*>(data);
    size_t n = size / sizeof(int), i = 0;
    for (int d = 0; d < 8 && i < n; ++d)
      if ((a.accessed_by >> d & 1) != 0) out[i++] = d;
    if ((a.accessed_by >> 31) != 0 && i < n) out[i++] = CU_DEVICE_CPU;
    while (i < n) out[i++] = CU_DEVICE_INVALID;
    return CUDA_SUCCESS;
  }
  if (size < 4) return CUDA_ERROR_INVALID_VALUE;
  auto type_of = [](int device) {
    return device == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
           : device == CU_DEVICE_CPU   ? CU_MEM_LOCATION_TYPE_HOST
                                       : CU_MEM_LOCATION_TYPE_DEVICE;
  };
  switch (static_cast<int>(id)) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return give(data, a.read_mostly);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return give(data, a.preferred);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return give(data, a.last_prefetch);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return give(data, type_of(a.preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return give(data, type_of(a.last_prefetch));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuPointerGetAttribute(void* out, CUpointer_attribute id, CUdeviceptr at) {
  ENTER(cuPointerGetAttribute);
  if (!out || at == 0) return CUDA_ERROR_INVALID_VALUE;
  return attribute(out, id, at);
}

// Unlike the single one, it answers for plain host pointers, too: with zeros.
SIMGPU_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* ids, void** out,
                                  CUdeviceptr at) {
  ENTER(cuPointerGetAttributes);
  if (count == 0 || !ids || !out) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (!out[i]) return CUDA_ERROR_INVALID_VALUE;
    if (attribute(out[i], ids[i], at) == CUDA_SUCCESS) continue;
    if (ids[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      give(out[i], -2);
    } else {
      memset(out[i], 0, width_of(ids[i]));
    }
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuPointerSetAttribute(const void* value, CUpointer_attribute id, CUdeviceptr at) {
  ENTER(cuPointerSetAttribute);
  if (!value || id != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  int on = *static_cast<const int*>(value);
  return space().update(at, [=](Allocation& a) { a.sync_memops = on != 0; })
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuMemAdvise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device) {
  ENTER(cuMemAdvise);
  return advise(at, bytes, advice, device);
}

SIMGPU_API cuMemAdvise_v2(CUdeviceptr at, size_t bytes, CUmem_advise advice,
                          CUmemLocation location) {
  ENTER(cuMemAdvise_v2);
  int device = CU_DEVICE_INVALID;
  if (!place_of(location, &device)) device = CU_DEVICE_INVALID;
  return advise(at, bytes, advice, device);
}

SIMGPU_API cuMemPrefetchAsync(CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream) {
  ENTER(cuMemPrefetchAsync);
  return prefetch(at, bytes, device, stream);
}

SIMGPU_API cuMemPrefetchAsync_v2(CUdeviceptr at, size_t bytes, CUmemLocation location,
                                 unsigned flags, CUstream stream) {
  ENTER(cuMemPrefetchAsync_v2);
  int device;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!place_of(location, &device)) return CUDA_ERROR_INVALID_DEVICE;
  return prefetch(at, bytes, device, stream);
}

SIMGPU_API cuMemPrefetchBatchAsync(CUdeviceptr* at, size_t* bytes, size_t count,
                                   CUmemLocation* places, size_t* firsts, size_t place_count,
                                   unsigned long long flags, CUstream stream) {
  ENTER(cuMemPrefetchBatchAsync);
  return prefetch_ranges({at, bytes, count}, places, firsts, place_count, flags, stream);
}

SIMGPU_API cuMemDiscardBatchAsync(CUdeviceptr* at, size_t* bytes, size_t count,
                                  unsigned long long flags, CUstream stream) {
  ENTER(cuMemDiscardBatchAsync);
  return check_ranges({at, bytes, count}, flags, stream);
}

SIMGPU_API cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* at, size_t* bytes, size_t count,
                                             CUmemLocation* places, size_t* firsts,
                                             size_t place_count, unsigned long long flags,
                                             CUstream stream) {
  ENTER(cuMemDiscardAndPrefetchBatchAsync);
  return prefetch_ranges({at, bytes, count}, places, firsts, place_count, flags, stream);
}

SIMGPU_API cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute id, CUdeviceptr at,
                                  size_t bytes) {
  ENTER(cuMemRangeGetAttribute);
  return range_attribute(data, size, id, at, bytes);
}

SIMGPU_API cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* ids,
                                   size_t count, CUdeviceptr at, size_t bytes) {
  ENTER(cuMemRangeGetAttributes);
  if (!data || !sizes || !ids || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (CUresult r = range_attribute(data[i], sizes[i], ids[i], at, bytes); r != CUDA_SUCCESS)
      return r;
  return CUDA_SUCCESS;
}
