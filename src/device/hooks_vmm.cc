// The application's own virtual memory calls.
#include "device/hooks.h"
#include "device/vmm_records.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm.h"

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
  Guard guard(vmm().lock);
  vmm().reservations.insert(node);
  return result;
}

// What ends an address or a handle holds the lock from before the call: the driver may give the
// value to another thread at once, whose record must come after this one is gone.
CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;  // the arena's
  Guard guard(vmm().lock);
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
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    pools_reclaim(true);
    if (stage_give_way()) result = real().cuMemCreate(handle, size, prop, flags);
  }
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  if (!vmm().add(name, size, *prop)) registry().refuse("out of memory while recording cuMemCreate");
  return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  uint64_t name = name_from(Kind::kMemHandle, handle);
  Guard guard(vmm().lock);
  MemoryHandle* known = vmm().handles.find(name);
  if (known && known->ours) {
    --known->ours;
    --known->references;
    return CUDA_SUCCESS;
  }
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
  Guard guard(vmm().lock);
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  auto* mapping = static_cast<Mapped*>(vmm().mappings.covering(bits(addr)));
  if (!mapping || !vmm().add_handle(mapping->memory, name))
    registry().refuse("cuMemRetainAllocationHandle: memory that was not created here");
  return result;
}

// What a restore can give again are descriptors, inside this process.
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
  const int fd = *static_cast<int*>(shareableHandle);
  realm_disown_fd(fd);
  Guard guard(vmm().lock);
  MemoryHandle* known = vmm().handles.find(name_from(Kind::kMemHandle, handle));
  if (!known || !vmm().add_exported(known->memory, fd))
    registry().refuse("cuMemExportToShareableHandle: memory that was not created here");
  return result;
}

CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                             CUmemAllocationHandleType shHandleType) {
  CUresult result = real().cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  Physical* memory = shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                         ? vmm().identify(static_cast<int>(bits(osHandle)), nullptr)
                         : nullptr;
  if (!memory || !vmm().add_handle(memory, name)) {
    registry().refuse("cuMemImportFromShareableHandle: memory of another process");
    return result;
  }
  memory->imported = true;
  return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = real().cuMemMap(ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
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
  Guard guard(vmm().lock);
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
  Guard guard(vmm().lock);
  RangeNode* node = vmm().mappings.covering(ptr);
  if (!node) node = vmm().mappings.ceiling(ptr);
  for (; node && node->begin < ptr + size; node = vmm().mappings.next(node)) {
    auto* mapping = static_cast<Mapped*>(node);
    for (size_t i = 0; i < count; ++i) {
      int device = desc[i].location.id;
      if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && device >= 0 &&
          device < kMaxDevices)
        mapping->access[device] = static_cast<uint8_t>(desc[i].flags);
    }
  }
  return result;
}

}  // namespace gpuckpt
