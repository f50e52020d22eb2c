// Device memory: cuMemAlloc and friends from the arena, and what applications ask about pointers.
#include "base/syscall.h"
#include "device/arena/vmm.h"
#include "device/base/call_sites.h"
#include "device/base/lock_order.h"
#include "device/capture/capture.h"
#include "device/capture/idle.h"
#include "device/hooks/hooks.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/gate/refuse.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/spec/wrapper_support.h"

namespace gpuckpt {
namespace device {

void make_room(int device) {
  pools_reclaim(true);
  vmm_sweep();
  free_stage_memory();
  if (DeviceMemory* memory = device_memory(device)) {
    MutexLock guard(memory->lock);
    memory->arena.trim();
  }
}

CUresult take_memory(int device, uint64_t context, uint64_t pool, uint64_t bytes,
                     CUdeviceptr* out) {
  DeviceMemory* memory = device_memory(device);
  if (!memory) return CUDA_ERROR_INVALID_DEVICE;
  uint32_t site = call_site();
  for (int attempt = 0;; ++attempt) {
    int error;
    {
      MutexLock guard(memory->lock);
      Allocation* allocation = nullptr;
      error = memory->arena.allocate(bytes, kUnitBytes, &allocation);
      if (!error) {
        allocation->context = context;
        allocation->pool = pool;
        allocation->site = site;
        *out = allocation->begin;
        return CUDA_SUCCESS;
      }
    }
    if (error != CUDA_ERROR_OUT_OF_MEMORY || attempt) return static_cast<CUresult>(error);
    make_room(device);
  }
}

CUresult ask_capture() {
  if (!__atomic_load_n(&captures_active, __ATOMIC_RELAXED)) return CUDA_SUCCESS;
  CUdeviceptr probe = 0;
  CUresult result = real().cuMemAlloc_v2(&probe, 512);
  if (result == CUDA_SUCCESS) real().cuMemFree_v2(probe);
  bool capture_error = result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                       result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  return capture_error ? result : CUDA_SUCCESS;
}

CUresult ask_context() {
  if (__atomic_load_n(&captures_active, __ATOMIC_RELAXED)) return CUDA_SUCCESS;
  CUresult result = real().cuStreamQuery(CU_STREAM_LEGACY);
  return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

void free_memory_of(uint64_t context) {
  for (int device = 0; device < kMaxDevices; ++device) {
    DeviceMemory* memory = device_memory(device);
    if (!memory) continue;
    MutexLock guard(memory->lock);
    for (Allocation *a = memory->arena.first(), *next; a; a = next) {
      next = memory->arena.next(a);
      if (a->context == context && !a->pool) memory->arena.free(a);
    }
  }
}

namespace {

// Where an allocation of the calling thread goes. Anything but success: the driver's own answer.
CUresult where(int* device, uint64_t* context) {
  CUdevice current;
  CUresult result = real().cuCtxGetDevice(&current);
  if (result != CUDA_SUCCESS) return result;
  *device = current;
  *context = current_context_name();
  return CUDA_SUCCESS;
}

CUresult allocate_for_caller(CUdeviceptr* out, size_t bytes, bool* native) {
  int device;
  uint64_t context;
  *native = false;
  if (CUresult result = where(&device, &context)) return result;
  DeviceMemory* memory = device_memory(device);
  if (!memory || !memory->has_vmm) {
    *native = true;
    if (memory) __atomic_add_fetch(&memory->native, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
  }
  if (CUresult result = ask_capture()) return result;
  if (CUresult result = ask_context()) return result;
  return take_memory(device, context, 0, bytes, out);
}

struct Found {
  int device;
  uint64_t begin, size, id, context, pool;
  bool sync_memops;
};
bool find_device_memory(uint64_t address, Found* out) {
  int device = device_holding(address);
  if (device < 0) return false;
  DeviceMemory* memory = device_memory(device);
  MutexLock guard(memory->lock);
  Allocation* a = memory->arena.covering(address);
  if (!a) return false;
  *out = {device, a->begin, a->size, a->id, a->context, a->pool, a->sync_memops};
  return true;
}

template <typename T>
CUresult answer(void* data, T value) {
  __builtin_memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult device_attribute(void* data, CUpointer_attribute attribute, uint64_t address,
                          const Found& a) {
  DeviceMemory* memory = device_memory(a.device);
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return answer(data, a.pool ? 0 : a.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer<unsigned>(data, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return answer(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      answer<uint64_t>(data, 0);
      return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return answer<int>(data, a.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return answer(data, a.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return answer<int>(data, false);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return answer<int>(data, a.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return answer<int>(data, memory->backing.exportable && !a.pool);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return answer(data, a.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return answer(data, a.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return answer<int>(data, true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return answer<uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return answer<int>(data, memory->backing.rdma);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return answer<unsigned>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return answer(data, a.pool);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return answer(data, a.id);
    default: {  // newer than this: as the driver answers for the mapping underneath
      return real().cuPointerGetAttribute(data, attribute, address);
    }
  }
}

CUresult pinned_attribute(void* data, CUpointer_attribute attribute, uint64_t address,
                          const PinnedView& p) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return answer(data, p.context);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return answer(data, address);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer<unsigned>(data, p.managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return answer<int>(data, p.managed);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return answer(data, p.id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return answer(data, p.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return answer(data, p.size);
    default:
      return real().cuPointerGetAttribute(data, attribute, address);
  }
}

// The driver answered about something of its own: handles become names.
CUresult foreign_attribute(void* data, CUpointer_attribute attribute, uint64_t address) {
  CUresult result = real().cuPointerGetAttribute(data, attribute, address);
  if (result != CUDA_SUCCESS || !translating()) return result;
  Kind kind = attribute == CU_POINTER_ATTRIBUTE_CONTEXT          ? Kind::kContext
              : attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ? Kind::kPool
                                                                 : Kind::kNone;
  if (kind == Kind::kNone) return result;
  uint64_t handle;
  __builtin_memcpy(&handle, data, sizeof handle);
  return answer(data, name_of(kind, handle));
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, uint64_t address) {
  Found found;
  if (find_device_memory(address, &found)) return device_attribute(data, attribute, address, found);
  PinnedView pinned;
  if (find_pinned(address, &pinned) && pinned.ours)
    return pinned_attribute(data, attribute, address, pinned);
  return foreign_attribute(data, attribute, address);
}

// Memory that is not the arena's, with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS set. What was freed since
// may be among it.
struct Synchronous {
  Mutex lock{kSyncMemopsLock};
  Vector<uint64_t> addresses;
};
Synchronous* synchronous;

void note_sync_memops(uint64_t address, bool on) {
  Synchronous& all = made_once(&synchronous);
  MutexLock guard(all.lock);
  size_t i = 0;
  while (i < all.addresses.size() && all.addresses[i] != address) ++i;
  const bool known = i < all.addresses.size();
  if (known && !on) all.addresses.swap_remove(i);
  if (!known && on && !all.addresses.push(address))
    registry().refuse("out of memory while recording cuPointerSetAttribute");
}

CUresult set_sync_memops(uint64_t address) {
  const int on = 1;
  return real().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
}

}  // namespace

bool replay_sync_memops(DeviceReport* report) {
  for (int device = 0; device < machine_facts.devices; ++device) {
    DeviceMemory* memory = device_memory(device);
    WithContext with(any_context(device));
    for (Allocation* a = memory ? memory->arena.first() : nullptr; a; a = memory->arena.next(a)) {
      CUresult result = a->sync_memops ? set_sync_memops(a->begin) : CUDA_SUCCESS;
      if (result != CUDA_SUCCESS)
        return report->fail(
            kExitIncompatible,
            "memory at 0x%lx cannot be made synchronous (cuPointerSetAttribute) again (%d)",
            a->begin, static_cast<int>(result));
    }
  }
  for (size_t i = 0; synchronous && i < synchronous->addresses.size(); ++i)
    set_sync_memops(synchronous->addresses[i]);
  return true;
}

}  // namespace device

using namespace device;

CUresult hook_cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (!dptr || !bytesize) return real().cuMemAlloc_v2(dptr, bytesize);
  bool native;
  CUresult result = allocate_for_caller(dptr, bytesize, &native);
  return native ? real().cuMemAlloc_v2(dptr, bytesize) : result;
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                 size_t Height, unsigned int ElementSizeBytes) {
  bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (!dptr || !pPitch || !WidthInBytes || !Height || !element)
    return real().cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  size_t pitch = (WidthInBytes + 511) & ~size_t{511}, bytes;
  if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  CUdevice device;
  int limit = 0;
  if (CUresult result = real().cuCtxGetDevice(&device)) return result;
  if (real().cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_PITCH, device) == CUDA_SUCCESS &&
      limit > 0 && WidthInBytes > static_cast<size_t>(limit))
    return CUDA_ERROR_INVALID_VALUE;
  bool native;
  CUresult result = allocate_for_caller(dptr, bytes, &native);
  if (native)
    return real().cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr) {
  int device = dptr ? device_holding(dptr) : -1;
  if (device < 0) {
    PinnedView view;
    if (ipc_from_pool(dptr)) {
      CUresult result = wait_idle(current_context_name());
      ipc_free_from_pool(dptr);
      return result;
    }
    if (!dptr || !find_pinned(dptr, &view) || !view.ours) return real().cuMemFree_v2(dptr);
    return view.managed ? free_pinned(dptr) : CUDA_ERROR_INVALID_VALUE;
  }
  DeviceMemory* memory = device_memory(device);
  uint64_t context, pool;
  {
    CUcontext current;  // as without gpuckpt: no free without a context
    CUresult result = real().cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS) return result;
    MutexLock guard(memory->lock);
    Allocation* a = memory->arena.starting(dptr);
    if (!a || a->ready) return CUDA_ERROR_INVALID_VALUE;
    context = a->context;
    pool = a->pool;
  }
  if (CUresult result = ask_capture()) return result;
  if (CUresult result = wait_idle(pool ? current_context_name() : context)) return result;
  if (pool) return free_pool_memory(dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  MutexLock guard(memory->lock);
  Allocation* a = memory->arena.starting(dptr);
  if (!a) return CUDA_ERROR_INVALID_VALUE;
  memory->arena.free(a);
  return CUDA_SUCCESS;
}

CUresult hook_cuMemGetInfo_v2(size_t* free, size_t* total) {
  vmm_sweep();
  CUresult result = real().cuMemGetInfo_v2(free, total);
  CUdevice device;
  if (result != CUDA_SUCCESS || !free || real().cuCtxGetDevice(&device) != CUDA_SUCCESS)
    return result;
  DeviceMemory* memory = device_memory(device);
  if (memory) *free += memory->arena.cached_bytes() + stage_bytes(device);
  *free += our_bytes(device);
  return result;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Found found;
  PinnedView pinned;
  if (find_device_memory(dptr, &found)) {
    if (pbase) *pbase = found.begin;
    if (psize) *psize = found.size;
    return CUDA_SUCCESS;
  }
  if (device_holding(dptr) >= 0) return CUDA_ERROR_NOT_FOUND;
  uint64_t begin, size;
  if (find_opened(dptr, &begin, &size)) {
    if (pbase) *pbase = begin;
    if (psize) *psize = size;
    return CUDA_SUCCESS;
  }
  if (find_pinned(dptr, &pinned) && pinned.ours) {
    if (pbase) *pbase = pinned.begin;
    if (psize) *psize = pinned.size;
    return CUDA_SUCCESS;
  }
  return real().cuMemGetAddressRange_v2(pbase, psize, dptr);
}

CUresult hook_cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (!data) return real().cuPointerGetAttribute(data, attribute, ptr);
  return pointer_attribute(data, attribute, ptr);
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                     void** data, CUdeviceptr ptr) {
  // Asking the driver first checks arguments and gives every attribute its default for pointers
  // that belong to no allocation.
  CUresult result = real().cuPointerGetAttributes(numAttributes, attributes, data, ptr);
  if (result != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < numAttributes; ++i) {
    Found found;
    PinnedView pinned;
    bool known = find_device_memory(ptr, &found) || (find_pinned(ptr, &pinned) && pinned.ours);
    bool handle = attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
                  attributes[i] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    if (data[i] && (known || (translating() && handle)))
      pointer_attribute(data[i], attributes[i], ptr);
  }
  return CUDA_SUCCESS;
}

CUresult hook_cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                    CUdeviceptr ptr) {
  // SYNC_MEMOPS is the only one there is. Copies to or from memory with it are synchronous.
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return real().cuPointerSetAttribute(value, attribute, ptr);
  bool on;
  __builtin_memcpy(&on, value, 1);
  Found found;
  if (!find_device_memory(ptr, &found)) {
    CUresult result = real().cuPointerSetAttribute(value, attribute, ptr);
    if (result == CUDA_SUCCESS) note_sync_memops(ptr, on);
    return result;
  }
  // Allocations share what the driver sets it for: it stays on for the others.
  CUresult result = on ? real().cuPointerSetAttribute(value, attribute, ptr) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  DeviceMemory* memory = device_memory(found.device);
  MutexLock guard(memory->lock);
  if (Allocation* a = memory->arena.covering(ptr)) a->sync_memops = on;
  return result;
}

// Called by the wrappers (intercept/spec/wrapper_support.h), inside the gate. The native allocator
// gives whole units, and so do we: within the last one nothing is said.
CUresult leaves_allocation(CUdeviceptr address, uint64_t bytes) {
  const int device = bytes ? device_holding(address) : -1;
  if (device < 0) return CUDA_SUCCESS;
  DeviceMemory* memory = device_memory(device);
  LateFinds::Find& late = memory->finds.at(address);
  auto get = [](const uint64_t& field) { return __atomic_load_n(&field, __ATOMIC_RELAXED); };
  const uint64_t ended = memory->arena.ended();
  if (get(late.ended) == ended && address >= get(late.begin) && address < get(late.end) &&
      bytes <= get(late.end) - address)
    return CUDA_SUCCESS;
  {
    MutexLock guard(memory->lock);
    const Allocation* a = memory->arena.covering(address);
    if (!a) return CUDA_SUCCESS;  // the rest of a block, or nothing: the driver's word
    const uint64_t end = a->begin + ((a->size + kUnitBytes - 1) & ~(kUnitBytes - 1));
    __atomic_store_n(&late.begin, a->begin, __ATOMIC_RELAXED);
    __atomic_store_n(&late.end, end, __ATOMIC_RELAXED);
    __atomic_store_n(&late.ended, ended, __ATOMIC_RELAXED);
    if (bytes <= end - address) return CUDA_SUCCESS;
  }
  CUresult broken = ask_context();
  return broken ? broken : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuckpt
