// The application's own virtual memory calls.
#include "base/syscall.h"
#include "device/arena/vmm.h"
#include "device/arena/vmm_records.h"
#include "device/hooks/hooks.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt {

using namespace device;

CUresult hook_cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags) {
  CUresult result = real().cuMemAddressReserve(ptr, size, alignment, addr, flags);
  if (result != CUDA_SUCCESS) return result;
  auto* node = make<Reserved>();
  if (!node) {
    registry().refuse("out of memory while recording cuMemAddressReserve");
    return result;
  }
  node->begin = *ptr;
  node->size = size;
  MutexLock guard(vmm().lock);
  vmm().reservations.insert(node);
  return result;
}

// Calls that end an address or a handle take the lock before they call the driver: the driver may
// give the value to another thread at once, whose record must come after this one is gone.
CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;  // the arena's
  MutexLock guard(vmm().lock);
  CUresult result = real().cuMemAddressFree(ptr, size);
  if (result != CUDA_SUCCESS) return result;
  RangeNode* node = vmm().reservations.covering(ptr);
  if (node && node->begin == ptr) {
    vmm().reservations.erase(node);
    destroy(static_cast<Reserved*>(node));
  }
  return result;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                          const CUmemAllocationProp* prop, unsigned long long flags) {
  CUresult result = real().cuMemCreate(handle, size, prop, flags);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !is_of_host(prop->location)) {
    make_room(prop->location.id);
    result = real().cuMemCreate(handle, size, prop, flags);
  }
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(vmm().lock);
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  if (!vmm().add(name, size, *prop)) registry().refuse("out of memory while recording cuMemCreate");
  return result;
}

namespace {
// Of another value: the program's is no longer valid.
CUmemGenericAllocationHandle another_handle(CUmemGenericAllocationHandle handle) {
  CUmemGenericAllocationHandle other = 0;
  int fd = -1;
  if (export_memory(handle, &fd) != CUDA_SUCCESS) return 0;
  if (import_memory(fd, &other) != CUDA_SUCCESS) other = 0;
  sys::close(fd);
  return other;
}
}  // namespace

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  uint64_t name = name_from(Kind::kMemHandle, handle);
  MutexLock guard(vmm().lock);
  MemoryHandle* known = vmm().handles.find(name);
  if (known && known->ours) {
    --known->ours;
    --known->references;
    return CUDA_SUCCESS;
  }
  if (known && known->references == 1)
    vmm().keep_for_descriptors(known->memory, [&] { return another_handle(handle); });
  CUresult result = real().cuMemRelease(handle);
  if (result != CUDA_SUCCESS) return result;
  if (known && --known->references) return result;
  if (translating()) drop(Kind::kMemHandle, name);
  if (!known) return result;
  Physical* memory = known->memory;
  vmm().handles.erase(name);
  --memory->handles;
  vmm().drop_if_unused(memory);
  return result;
}

// One more reference, by the handle that is known or another one for the same memory.
CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  CUresult result = real().cuMemRetainAllocationHandle(handle, addr);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(vmm().lock);
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  auto* mapping = static_cast<Mapped*>(vmm().mappings.covering(bits(addr)));
  if (!mapping || !vmm().add_handle(mapping->memory, name))
    registry().refuse("cuMemRetainAllocationHandle: memory that was not created here");
  return result;
}

// No process can tell the driver's own descriptors apart, so the program gets ours.
namespace {

// Returns false if no descriptor can be made or sent.
bool share_memory(int* out, Physical* memory, int real_descriptor) {
  if (!memory->name.pid) memory->name = new_shared_name();
  OwnFd end;
  const int fd = share(shareable_of(memory), real_descriptor, &end);
  if (fd < 0) return false;
  *out = fd;
  if (!vmm().add_exported(memory, end))
    registry().refuse("out of memory while recording cuMemExportToShareableHandle");
  return true;
}

// A handle for memory that is known here, or of another process.
bool add_imported(const Shareable& what, int descriptor, uint64_t handle) {
  if (Physical* known = vmm().named(what.name)) return vmm().add_handle(known, handle);
  CUmemAllocationProp properties = {};
  CUresult result = real().cuMemGetAllocationPropertiesFromHandle(
      &properties, real_of<CUmemGenericAllocationHandle>(Kind::kMemHandle, handle));
  Physical* memory = result == CUDA_SUCCESS ? vmm().add(handle, what.size, properties) : nullptr;
  if (!memory) return false;
  memory->name = what.name;
  memory->foreign = true;
  memory->ticket = duplicate_high(descriptor);
  return memory->ticket.fd >= 0;
}

}  // namespace

CUresult hook_cuMemExportToShareableHandle(void* shareableHandle,
                                           CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType handleType,
                                           unsigned long long flags) {
  CUresult result = real().cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
  if (result != CUDA_SUCCESS) return result;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    registry().refuse("cuMemExportToShareableHandle: a handle that is no descriptor (fabric)");
    return result;
  }
  auto* fd = static_cast<int*>(shareableHandle);
  const int drivers = *fd;
  realm_disown_fd(drivers);
  MutexLock guard(vmm().lock);
  vmm().sweep_sometimes();
  MemoryHandle* known = vmm().handles.find(name_from(Kind::kMemHandle, handle));
  const bool of_host = known && is_of_host(known->memory->properties.location);
  DeviceMemory* memory =
      known && !of_host ? device_memory(known->memory->properties.location.id) : nullptr;
  if (memory && memory->backing.exportable && share_memory(fd, known->memory, drivers))
    sys::close(drivers);
  else
    registry().refuse("cuMemExportToShareableHandle: a descriptor of the driver's own");
  return result;
}

CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                             CUmemAllocationHandleType shHandleType) {
  const int descriptor = static_cast<int>(bits(osHandle));
  Shareable what;
  int drivers = -1;
  const bool ours = shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                    look_at_shareable(descriptor, 0, &what, &drivers);
  if (ours && (!handle || drivers < 0 || what.kind != Shareable::kMemory)) {
    if (drivers >= 0) sys::close(drivers);
    return CUDA_ERROR_INVALID_VALUE;
  }
  MutexLock guard(vmm().lock);
  CUresult result = ours ? import_memory(drivers, handle)
                         : real().cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
  if (ours) sys::close(drivers);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t name = new_name(Kind::kMemHandle, *handle);
  if (!ours)
    registry().refuse("cuMemImportFromShareableHandle: memory of a process without gpuckpt");
  else if (!add_imported(what, descriptor, name))
    registry().refuse("cuMemImportFromShareableHandle: no descriptor or memory to record it");
  return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = real().cuMemMap(ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(vmm().lock);
  MemoryHandle* known = vmm().handles.find(name_from(Kind::kMemHandle, handle));
  auto* mapping = known ? make<Mapped>() : nullptr;
  if (!mapping) {
    registry().refuse("cuMemMap: a mapping of memory that was not created here");
    return result;
  }
  mapping->begin = ptr;
  mapping->size = size;
  mapping->offset = offset;
  mapping->memory = known->memory;
  ++known->memory->mappings;
  vmm().mappings.insert(mapping);
  return result;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  MutexLock guard(vmm().lock);
  for (RangeNode* n = vmm().mappings.ceiling(ptr); n && n->begin < ptr + size;
       n = vmm().mappings.next(n))
    vmm().keep_for_descriptors(static_cast<Mapped*>(n)->memory, [&] {
      CUmemGenericAllocationHandle hold = 0;
      real().cuMemRetainAllocationHandle(&hold, reinterpret_cast<void*>(n->begin));
      return hold;
    });
  CUresult result = real().cuMemUnmap(ptr, size);
  if (result != CUDA_SUCCESS) return result;
  while (RangeNode* node = vmm().mappings.ceiling(ptr)) {
    if (node->begin >= ptr + size) break;
    auto* mapping = static_cast<Mapped*>(node);
    vmm().mappings.erase(mapping);
    --mapping->memory->mappings;
    vmm().drop_if_unused(mapping->memory);
    destroy(mapping);
  }
  return result;
}

CUresult hook_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                             size_t count) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = real().cuMemSetAccess(ptr, size, desc, count);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(vmm().lock);
  RangeNode* node = vmm().mappings.covering(ptr);
  if (!node) node = vmm().mappings.ceiling(ptr);
  for (; node && node->begin < ptr + size; node = vmm().mappings.next(node)) {
    auto* mapping = static_cast<Mapped*>(node);
    for (size_t i = 0; i < count; ++i) {
      if (is_of_host(desc[i].location)) mapping->host = desc[i];
      int device = desc[i].location.id;
      if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && device >= 0 &&
          device < kMaxDevices)
        mapping->access[device] = static_cast<uint8_t>(desc[i].flags);
    }
  }
  return result;
}

}  // namespace gpuckpt
