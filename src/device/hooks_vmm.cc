// The application's own virtual memory calls.
#include "common/text.h"
#include "device/capture.h"
#include "device/hooks.h"
#include "device/vmm.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

struct Reserved : RangeNode {};

struct Physical {
  uint64_t name = 0;  // the application's handle; a mapping keeps the memory after its release
  uint64_t size = 0;
  CUmemAllocationProp properties = {};
  bool released = false;
  uint32_t mappings = 0, references = 1;
  CUmemGenericAllocationHandle replayed = 0;
};

struct Mapped : RangeNode {
  uint64_t offset = 0;
  Physical* memory = nullptr;
  uint8_t access[kMaxDevices] = {};  // CUmemAccess_flags
};

struct Vmm {
  Lock lock;
  RangeTree reservations, mappings;
  HashMap<Physical*> handles;  // by name, not released; memory may have several
};

Vmm& vmm() {
  static Vmm* instance;
  Vmm* seen = __atomic_load_n(&instance, __ATOMIC_ACQUIRE);
  if (seen) return *seen;
  Vmm* fresh = make<Vmm>();
  if (__atomic_compare_exchange_n(&instance, &seen, fresh, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    return *fresh;
  destroy(fresh);
  return *seen;
}

void drop_if_unused(Physical* memory) {
  if (memory->released && !memory->mappings) destroy(memory);
}

// No handle names the memory any more.
void forget_handles(Physical* memory) {
  Vector<uint64_t> names;
  vmm().handles.each([&](uint64_t name, Physical* its) {
    if (its == memory) names.push(name);
  });
  for (uint64_t name : names) {
    if (translating()) drop(Kind::kMemHandle, name);
    vmm().handles.erase(name);
  }
}

template <typename F>
void each_mapping(F f) {
  for (RangeNode* n = vmm().mappings.first(); n;) {
    auto* mapping = static_cast<Mapped*>(n);
    n = vmm().mappings.next(n);
    f(mapping);
  }
}

CUresult set_access(uint64_t address, uint64_t size, int device, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = flags;
  return real().cuMemSetAccess(address, size, &access, 1);
}

int owner_of(const Mapped* mapping) { return mapping->memory->properties.location.id; }

}  // namespace

const char* vmm_refusal() {
  Guard guard(vmm().lock);
  const char* why = nullptr;
  vmm().handles.each([&](uint64_t, Physical* memory) {
    if (!memory->mappings) why = "cuMemCreate: physical memory that is mapped nowhere";
    if (memory->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
      why = "cuMemCreate: physical memory of the host";
  });
  return why;
}

void vmm_extents(int device, Vector<VmmExtent>* out) {
  Guard guard(vmm().lock);
  each_mapping([&](Mapped* mapping) {
    if (owner_of(mapping) == device) out->push({mapping->begin, mapping->size});
  });
}

void vmm_unlock() {
  each_mapping([](Mapped* mapping) {
    int owner = owner_of(mapping);
    if (mapping->access[owner] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      set_access(mapping->begin, mapping->size, owner, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  });
}

void vmm_relock() {
  each_mapping([](Mapped* mapping) {
    int owner = owner_of(mapping);
    auto wanted = static_cast<CUmemAccess_flags>(mapping->access[owner]);
    if (wanted != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      set_access(mapping->begin, mapping->size, owner, wanted);
  });
}

// Leaves the owner's access open for the upload; vmm_relock() ends that.
bool rebuild_vmm(DeviceReport* report) {
  for (RangeNode* n = vmm().reservations.first(); n; n = vmm().reservations.next(n)) {
    CUdeviceptr place = 0;
    CUresult result = real().cuMemAddressReserve(&place, n->size, 0, n->begin, 0);
    if (result == CUDA_SUCCESS && place == n->begin) continue;
    if (result == CUDA_SUCCESS) real().cuMemAddressFree(place, n->size);
    return fail(report, kExitIncompatible,
                "the address range 0x%lx-0x%lx that the program reserved (cuMemAddressReserve) "
                "cannot be had here",
                n->begin, n->begin + n->size);
  }
  auto create = [&](Physical* memory) {
    CUresult result = real().cuMemCreate(&memory->replayed, memory->size, &memory->properties, 0);
    if (result == CUDA_SUCCESS) return true;
    return fail(report, kExitIncompatible,
                "%lu bytes of device memory (cuMemCreate) cannot be allocated here (%d)",
                memory->size, static_cast<int>(result));
  };
  bool ok = true;
  vmm().handles.each([&](uint64_t, Physical* memory) { memory->replayed = 0; });
  each_mapping([](Mapped* mapping) { mapping->memory->replayed = 0; });
  vmm().handles.each([&](uint64_t name, Physical* memory) {
    ok = ok && (memory->replayed || create(memory));
    if (ok) bind(Kind::kMemHandle, name, memory->replayed);
  });
  each_mapping([&](Mapped* mapping) {
    Physical* memory = mapping->memory;
    if (!ok || (memory->released && !memory->replayed && !(ok = create(memory)))) return;
    CUresult result =
        real().cuMemMap(mapping->begin, mapping->size, mapping->offset, memory->replayed, 0);
    for (int device = 0; device < kMaxDevices && result == CUDA_SUCCESS; ++device) {
      auto flags = static_cast<CUmemAccess_flags>(mapping->access[device]);
      if (device == owner_of(mapping)) flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (flags) result = set_access(mapping->begin, mapping->size, device, flags);
    }
    if (result != CUDA_SUCCESS)
      ok = fail(report, kExitIncompatible, "memory cannot be mapped at 0x%lx again (%d)",
                mapping->begin, static_cast<int>(result));
  });
  each_mapping([&](Mapped* mapping) {
    Physical* memory = mapping->memory;
    if (!memory->replayed) return;
    if (memory->released) real().cuMemRelease(memory->replayed);
    // What cuMemRetainAllocationHandle gave beside the first one.
    CUmemGenericAllocationHandle again;
    for (uint32_t i = 1; ok && i < memory->references; ++i)
      ok = real().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(mapping->begin)) ==
               CUDA_SUCCESS ||
           fail(report, kExitIncompatible, "a handle of memory at 0x%lx cannot be had again",
                mapping->begin);
    memory->replayed = 0;
  });
  return ok;
}

}  // namespace device

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

CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;  // the arena's
  CUresult result = real().cuMemAddressFree(ptr, size);
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
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
  auto* memory = make<Physical>();
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  Guard guard(vmm().lock);
  if (!memory || !vmm().handles.put(name, memory)) {
    registry().refuse("out of memory while recording cuMemCreate");
    destroy(memory);
    return result;
  }
  memory->name = name;
  memory->size = size;
  memory->properties = *prop;
  return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  uint64_t name = name_from(Kind::kMemHandle, handle);
  CUresult result = real().cuMemRelease(handle);
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
  Physical** known = vmm().handles.find(name);
  Physical* memory = known ? *known : nullptr;
  if (memory && --memory->references) return result;
  if (translating()) drop(Kind::kMemHandle, name);
  if (!memory) return result;
  forget_handles(memory);
  memory->released = true;
  drop_if_unused(memory);
  return result;
}

// One more reference, by the handle that is known or another one for the same memory.
CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  CUresult result = real().cuMemRetainAllocationHandle(handle, addr);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kMemHandle, *handle);
  Guard guard(vmm().lock);
  auto* mapping = static_cast<Mapped*>(vmm().mappings.covering(bits(addr)));
  Physical* memory = mapping ? mapping->memory : nullptr;
  if (!memory || (!vmm().handles.find(name) && !vmm().handles.put(name, memory))) {
    registry().refuse("cuMemRetainAllocationHandle: memory that was not created here");
    return result;
  }
  memory->references = memory->released ? 1 : memory->references + 1;
  memory->released = false;
  return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = real().cuMemMap(ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
  Physical** memory = vmm().handles.find(name_from(Kind::kMemHandle, handle));
  auto* mapping = memory ? make<Mapped>() : nullptr;
  if (!mapping) {
    registry().refuse("cuMemMap: a mapping of memory that was not created here");
    return result;
  }
  mapping->begin = ptr;
  mapping->size = size;
  mapping->offset = offset;
  mapping->memory = *memory;
  ++(*memory)->mappings;
  vmm().mappings.insert(mapping);
  return result;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  if (device_holding(ptr) >= 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = real().cuMemUnmap(ptr, size);
  if (result != CUDA_SUCCESS) return result;
  Guard guard(vmm().lock);
  while (RangeNode* node = vmm().mappings.ceiling(ptr)) {
    if (node->begin >= ptr + size) break;
    auto* mapping = static_cast<Mapped*>(node);
    vmm().mappings.erase(mapping);
    --mapping->memory->mappings;
    drop_if_unused(mapping->memory);
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
