// The application's own virtual memory calls: forwarded and counted; a snapshot is refused while
// any of it is alive.
#include "device/hooks.h"
#include "device/vmm.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {

int64_t vmm_reservations, vmm_handles, vmm_mappings;

namespace {
CUresult count(CUresult result, int64_t* counter, int64_t change) {
  if (result == CUDA_SUCCESS) __atomic_add_fetch(counter, change, __ATOMIC_RELAXED);
  return result;
}
}  // namespace

const char* vmm_in_use() {
  if (__atomic_load_n(&vmm_mappings, __ATOMIC_RELAXED) > 0) return "cuMemMap";
  if (__atomic_load_n(&vmm_handles, __ATOMIC_RELAXED) > 0) return "cuMemCreate";
  if (__atomic_load_n(&vmm_reservations, __ATOMIC_RELAXED) > 0) return "cuMemAddressReserve";
  return nullptr;
}

}  // namespace device

using namespace device;

CUresult hook_cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags) {
  return count(real().cuMemAddressReserve(ptr, size, alignment, addr, flags), &vmm_reservations, 1);
}
CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;  // ours
  return count(real().cuMemAddressFree(ptr, size), &vmm_reservations, -1);
}
CUresult hook_cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                          const CUmemAllocationProp* prop, unsigned long long flags) {
  CUresult result = real().cuMemCreate(handle, size, prop, flags);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    pools_reclaim(true);
    if (stage_give_way()) result = real().cuMemCreate(handle, size, prop, flags);
  }
  return count(result, &vmm_handles, 1);
}
CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  return count(real().cuMemRelease(handle), &vmm_handles, -1);
}
CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return count(real().cuMemMap(ptr, size, offset, handle, flags), &vmm_mappings, 1);
}
CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  return count(real().cuMemUnmap(ptr, size), &vmm_mappings, -1);
}
CUresult hook_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                             size_t count) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  return real().cuMemSetAccess(ptr, size, desc, count);
}

}  // namespace gpuckpt
