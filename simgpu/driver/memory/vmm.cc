// Virtual memory management: address ranges, physical handles, and mappings of one onto the other.
#include <fcntl.h>
#include <string.h>

#include "driver/memory/memory.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

constexpr uint64_t kGranularity = kBigPage;

// A handle counts its users (create, retain, import); mappings keep the memory itself.
class Physical : public Object {
 public:
  static constexpr Kind kKind = Kind::kPhysical;
  Physical(Ref<Backing> b, const CUmemAllocationProp& p)
      : Object(kKind), backing(std::move(b)), prop(p) {}
  const Ref<Backing> backing;
  const CUmemAllocationProp prop;
  std::atomic<int> users{1};
};

AddressSpace& space() { return state()->memory; }

// This machine has one NUMA node.
bool is_host(const CUmemLocation& l) {
  return l.type == CU_MEM_LOCATION_TYPE_HOST || l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
         (l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && l.id == 0);
}

// `d` null: of the host.
CUresult check(const CUmemAllocationProp* p, Device** d) {
  if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (is_host(p->location)) {  // host memory cannot be exported
    *d = nullptr;
    return p->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS
                                                              : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *d = device_of(p->location.id);
  if (!*d) return CUDA_ERROR_INVALID_DEVICE;
  unsigned handles = static_cast<unsigned>(p->requestedHandleTypes);
  if ((handles & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

Ref<Physical> find(CUmemGenericAllocationHandle h) {
  return state()->handles.get<Physical>(reinterpret_cast<void*>(h));
}

CUmemGenericAllocationHandle publish(Physical* p) {
  state()->handles.add(p);
  return reinterpret_cast<CUmemGenericAllocationHandle>(p);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* prop,
                                         CUmemAllocationGranularity_flags) {
  ENTER(cuMemGetAllocationGranularity);
  Device* d;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check(prop, &d); r != CUDA_SUCCESS) return r;
  *out = kGranularity;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint,
                               unsigned long long flags) {
  ENTER(cuMemAddressReserve);
  if (!out || size == 0 || size % kGranularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment < kGranularity) alignment = kGranularity;
  uint64_t at = space().reserve(size, alignment, hint);
  if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = at;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemAddressFree(CUdeviceptr address, size_t size) {
  ENTER(cuMemAddressFree);
  uint64_t begin, end;
  if (!space().reserved(address, &begin, &end) || begin != address || end - begin != size)
    return CUDA_ERROR_INVALID_VALUE;
  if (space().overlaps(begin, end)) return CUDA_ERROR_INVALID_VALUE;
  space().unreserve(address);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemCreate(CUmemGenericAllocationHandle* out, size_t size,
                       const CUmemAllocationProp* prop, unsigned long long flags) {
  ENTER(cuMemCreate);
  if (!out || size == 0 || size % kGranularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* d;
  if (CUresult r = check(prop, &d); r != CUDA_SUCCESS) return r;
  bool shareable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  Ref<Backing> backing = Backing::create(d, size, shareable);
  if (!backing || (!d && !backing->share())) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = publish(new Physical(std::move(backing), *prop));
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(cuMemRelease);
  Ref<Physical> p = find(handle);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (p->users.fetch_sub(1) != 1) return CUDA_SUCCESS;
  state()->handles.remove(p.get());
  p->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ENTER(cuMemMap);
  Ref<Physical> p = find(handle);
  if (!p || flags != 0 || size == 0 || size % kGranularity != 0 || address % kGranularity != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (p->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) return CUDA_ERROR_INVALID_VALUE;
  // As documented, "must be zero".
  if (offset != 0 || size > p->backing->size) return CUDA_ERROR_INVALID_VALUE;
  uint64_t begin, end;
  if (!space().reserved(address, &begin, &end) || address + size > end)
    return CUDA_ERROR_INVALID_VALUE;
  if (space().overlaps(address, address + size)) return CUDA_ERROR_INVALID_VALUE;
  Mapping m;
  m.begin = address;
  m.end = address + size;
  m.host = p->backing->host;
  m.backing = p->backing;
  m.device = p->backing->device ? p->backing->device->ordinal : -1;
  m.by_access = m.device < 0;
  m.peer = false;
  space().map(std::move(m));
  Allocation a;
  a.type = MemoryType::kVirtual;
  a.base = a.block = address;
  a.size = a.block_bytes = size;
  a.id = fresh_id();
  a.device = p->backing->device ? p->backing->device->ordinal : 0;
  a.physical = handle;
  space().add(a);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemUnmap(CUdeviceptr address, size_t size) {
  ENTER(cuMemUnmap);
  Allocation a;
  if (!space().allocation_at(address, &a) || a.type != MemoryType::kVirtual)
    return CUDA_ERROR_INVALID_VALUE;
  if (!space().unmap(address, address + size)) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t at = address; at < address + size && space().remove(at, &a);) at += a.size;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* desc,
                          size_t count) {
  ENTER(cuMemSetAccess);
  if (!desc || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation a;
  if (!space().allocation_at(address, &a) || a.type != MemoryType::kVirtual)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const bool host = is_host(desc[i].location);
    if (!host && desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (!host && !device_of(desc[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    bool write = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    bool read = write || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
    const uint64_t end = address + size;
    if (host ? !space().set_host_access(address, end, read, write)
             : !space().set_access(address, end, desc[i].location.id, read, write))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                          CUdeviceptr address) {
  ENTER(cuMemGetAccess);
  if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device_of(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  Mapping m;
  if (!space().mapping(address, &m)) return CUDA_ERROR_INVALID_VALUE;
  *flags = (m.writable >> location->id & 1) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : (m.readable >> location->id & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  ENTER(cuMemRetainAllocationHandle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Allocation a;
  if (!space().allocation(reinterpret_cast<uint64_t>(address), &a) ||
      a.type != MemoryType::kVirtual)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Physical> p = find(a.physical);
  Mapping m;
  if (!space().mapping(a.base, &m) || !m.backing) return CUDA_ERROR_INVALID_VALUE;
  if (p &&
      p->backing.get() == m.backing.get()) {  // the value may have been reused for a new handle
    p->users.fetch_add(1);
    *out = a.physical;
    return CUDA_SUCCESS;
  }
  // The memory is mapped but its handle was released: it gets a new one.
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {m.by_access ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                   {a.device}};
  if (m.backing->shareable) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *out = publish(new Physical(m.backing, prop));
  CUmemGenericAllocationHandle now = *out;
  space().update(a.base, [now](Allocation& x) { x.physical = now; });
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                  CUmemGenericAllocationHandle handle) {
  ENTER(cuMemGetAllocationPropertiesFromHandle);
  Ref<Physical> p = find(handle);
  if (!out || !p) return CUDA_ERROR_INVALID_VALUE;
  *out = p->prop;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                        CUmemAllocationHandleType type, unsigned long long flags) {
  ENTER(cuMemExportToShareableHandle);
  Ref<Physical> p = find(handle);
  if (!out || !p || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !p->backing->shareable)
    return CUDA_ERROR_INVALID_VALUE;
  if (!p->backing->share()) return CUDA_ERROR_OPERATING_SYSTEM;
  int fd = fcntl(p->backing->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                          CUmemAllocationHandleType type) {
  ENTER(cuMemImportFromShareableHandle);
  if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Ref<Backing> b = Backing::import_fd(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)));
  if (!b) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {b->device->ordinal}};
  *out = publish(new Physical(std::move(b), prop));
  return CUDA_SUCCESS;
}
