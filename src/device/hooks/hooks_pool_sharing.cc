// Shareable handles of pools. A handle names the device alone: the memory of pools is the arena's,
// and goes to other processes allocation by allocation, as that of cuMemAlloc does (ipc.cc).
#include "base/syscall.h"
#include "device/base/lock_order.h"
#include "device/capture/capture.h"
#include "device/hooks/hooks.h"
#include "device/sharing/shareable.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt {
namespace device {
namespace {

struct Handed {
  SharedName name;
  int device;
  OwnFd end;
};
struct PoolSharing {
  Mutex lock{kPoolSharingLock};
  Vector<Handed> handed;

  void forget_closed() {
    for (size_t i = handed.size(); i--;) {
      if (!closed_everywhere(handed[i].end)) continue;
      handed[i].end.close();
      handed.swap_remove(i);
    }
  }
};
PoolSharing* only;
PoolSharing& sharing() { return made_once(&only); }

PoolObject* find_pool(CUmemoryPool pool) {
  return registry().find<PoolObject>(ObjectType::kPool, name_from(Kind::kPool, pool));
}

}  // namespace

bool is_imported_pool(CUmemoryPool pool) {
  MutexLock guard(registry().lock);
  PoolObject* known = find_pool(pool);
  return known && known->imported;
}

bool share_pools_again(DeviceReport* report) {
  for (size_t i = 0; only && i < only->handed.size(); ++i) {
    Handed& h = only->handed[i];
    h.end.restored();
    if (share_again(make_shareable(Shareable::kPool, h.name, h.device), -1, h.end)) continue;
    if (!closed_everywhere(h.end))
      return report->fail(kExitIncompatible, "a shareable handle of a pool cannot be made again");
  }
  return true;
}

}  // namespace device

using namespace device;

CUresult hook_cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                               CUmemAllocationHandleType handleType,
                                               unsigned long long flags) {
  CUresult result = real().cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags);
  if (result != CUDA_SUCCESS) return result;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    registry().refuse("cuMemPoolExportToShareableHandle: a handle that is no descriptor (fabric)");
    return result;
  }
  auto* fd = static_cast<int*>(handle_out);
  realm_disown_fd(*fd);
  Handed h = {};
  {
    MutexLock guard(registry().lock);
    PoolObject* known = find_pool(pool);
    h.device = known ? known->device : -1;
  }
  DeviceMemory* memory = device_memory(h.device);
  h.name = new_shared_name();
  const int ours = memory && memory->backing.exportable
                       ? share(make_shareable(Shareable::kPool, h.name, h.device), -1, &h.end)
                       : -1;
  if (ours < 0) {
    registry().refuse("cuMemPoolExportToShareableHandle: a descriptor of the driver's own");
    return result;
  }
  sys::close(*fd);
  *fd = ours;
  MutexLock guard(sharing().lock);
  sharing().forget_closed();
  if (!sharing().handed.push(h))
    registry().refuse("out of memory while recording cuMemPoolExportToShareableHandle");
  return result;
}

// The driver's pool here is an empty one, for what is asked about it.
CUresult hook_cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                                 CUmemAllocationHandleType handleType,
                                                 unsigned long long flags) {
  Shareable what;
  int none = -1;
  const bool ours = handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !flags &&
                    look_at_shareable(static_cast<int>(bits(handle)), 0, &what, &none);
  if (!ours) {
    CUresult result =
        real().cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags);
    if (result != CUDA_SUCCESS) return result;
    new_name(Kind::kPool, *pool_out);
    registry().refuse("cuMemPoolImportFromShareableHandle: a pool of a process without gpuckpt");
    return result;
  }
  if (none >= 0) sys::close(none);
  if (!pool_out || what.kind != Shareable::kPool) return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_with(what.device)}};
  if (properties.location.id < 0) return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = real().cuMemPoolCreate(pool_out, &properties);
  if (result != CUDA_SUCCESS) return result;
  PoolObject* known = know_pool(*pool_out, properties.location.id, false);
  if (!known) {
    registry().refuse("out of memory while recording cuMemPoolImportFromShareableHandle");
    return result;
  }
  known->properties = properties;
  known->imported = true;
  return result;
}

}  // namespace gpuckpt
