#include "device/arena/arena_driver.h"

#include <pthread.h>

#include "base/text/log.h"
#include "base/text/text.h"
#include "device/base/lock_order.h"
#include "device/base/settings.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

constexpr uint64_t kArenaBase = 0x100000000000, kArenaStep = 0x10000000000;
constexpr uint64_t kOtherBases[] = {0x100000000000, 0x300000000000, 0x500000000000, 0x0a0000000000};
constexpr uint64_t kReservationSizes[] = {1ull << 40, 1ull << 38, 1ull << 36};

DeviceMemory* memories[kMaxDevices];
Mutex memories_lock{kMemoriesLock};

CUmemAllocationProp properties_of(const VmmBacking& backing) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {backing.device}};
  if (backing.exportable)
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.allocFlags.gpuDirectRDMACapable = backing.rdma;
  return properties;
}

bool attribute(int device, CUdevice_attribute which) {
  int value = 0;
  return real().cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value;
}

void learn(DeviceMemory* memory, int device) {
  static bool told;
  if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
    pthread_atfork(nullptr, nullptr, mutexes_after_fork);
  VmmBacking& backing = memory->backing;
  backing.device = device;
  backing.peers = 1u << device;
  memory->has_vmm = attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  backing.rdma = attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  backing.exportable =
      settings().ipc &&
      attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  size_t granularity = 0;
  CUmemAllocationProp properties = properties_of(backing);
  if (memory->has_vmm &&
      (real().cuMemGetAllocationGranularity(&granularity, &properties,
                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS ||
       granularity > kBlockBytes || kBlockBytes % granularity)) {
    log_line(LogLevel::kWarn, "device %d: allocation granularity %zu is not supported", device,
             granularity);
    memory->has_vmm = false;
  }
  memory->arena.init(&backing);
}

}  // namespace

int VmmBacking::reserve(uint64_t bytes, uint64_t* address, uint64_t* got) {
  CUdeviceptr best = 0;
  uint64_t best_size = 0;
  for (uint64_t size : kReservationSizes) {
    if (size < bytes) continue;
    for (uint64_t base : kOtherBases) {
      uint64_t hint = base + static_cast<uint64_t>(device) * kArenaStep;
      for (const Reservation& r : reservations)
        if (hint >= r.begin && hint < r.begin + r.size) hint = 0;
      if (!hint) continue;
      CUdeviceptr place = 0;
      CUresult result = real().cuMemAddressReserve(&place, size, kBlockBytes, hint, 0);
      if (result != CUDA_SUCCESS) continue;
      if (place == hint || !best) {
        if (best) real().cuMemAddressFree(best, best_size);
        best = place;
        best_size = size;
      } else {
        real().cuMemAddressFree(place, size);
      }
      if (place == hint) break;
    }
    if (best) break;
  }
  if (!best) {
    CUresult result = real().cuMemAddressReserve(&best, bytes, kBlockBytes, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    best_size = bytes;
  }
  if (best % kBlockBytes || !reservations.push({best, best_size})) {
    real().cuMemAddressFree(best, best_size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = best;
  *got = best_size;
  return 0;
}

int VmmBacking::commit(uint64_t address, uint64_t bytes, uint64_t* handle) {
  CUmemGenericAllocationHandle memory = 0;
  CUmemAllocationProp properties = properties_of(*this);
  CUresult result = real().cuMemCreate(&memory, bytes, &properties, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && (rdma || exportable)) {
    // Promised by the attributes, refused in fact (containers, IOMMU settings): plain memory then.
    rdma = exportable = false;
    properties = properties_of(*this);
    result = real().cuMemCreate(&memory, bytes, &properties, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  result = real().cuMemMap(address, bytes, 0, memory, 0);
  if (result == CUDA_SUCCESS) {
    result = static_cast<CUresult>(allow_access(address, bytes));
    if (result != CUDA_SUCCESS) real().cuMemUnmap(address, bytes);
  }
  if (result != CUDA_SUCCESS) {
    real().cuMemRelease(memory);
    return result;
  }
  *handle = memory;
  return 0;
}

void VmmBacking::decommit(uint64_t address, uint64_t bytes, uint64_t handle) {
  ipc_forget_chunk(address);
  real().cuMemUnmap(address, bytes);
  real().cuMemRelease(handle);
}

int VmmBacking::allow_access(uint64_t address, uint64_t bytes) {
  CUmemAccessDesc access[kMaxDevices] = {};
  size_t count = 0;
  for (int other = 0; other < kMaxDevices; ++other) {
    if (!(peers & (1u << other))) continue;
    access[count].location = {CU_MEM_LOCATION_TYPE_DEVICE, {other}};
    access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return real().cuMemSetAccess(address, bytes, access, count);
}

DeviceMemory* device_memory(int device) {
  if (device < 0 || device >= kMaxDevices) return nullptr;
  DeviceMemory* memory = __atomic_load_n(&memories[device], __ATOMIC_ACQUIRE);
  if (memory) return memory;
  MutexLock guard(memories_lock);
  if (memories[device]) return memories[device];
  memory = make<DeviceMemory>();
  if (!memory) return nullptr;
  learn(memory, device);
  memory->ready = true;
  __atomic_store_n(&memories[device], memory, __ATOMIC_RELEASE);
  return memory;
}

int device_holding(uint64_t address) {
  for (int device = 0; device < kMaxDevices; ++device) {
    DeviceMemory* memory = __atomic_load_n(&memories[device], __ATOMIC_ACQUIRE);
    if (!memory) continue;
    const auto& reservations = memory->backing.reservations;
    for (size_t i = 0; i < reservations.size(); ++i)
      if (address - reservations[i].begin < reservations[i].size) return device;
  }
  return -1;
}

bool rebuild_device_memory(DeviceReport* report) {
  for (int device = 0; device < kMaxDevices; ++device) {
    DeviceMemory* memory = memories[device];
    if (!memory) continue;
    VmmBacking& backing = memory->backing;
    for (Reservation& r : backing.reservations) {
      CUdeviceptr place = 0;
      CUresult result = real().cuMemAddressReserve(&place, r.size, kBlockBytes, r.begin, 0);
      if (result == CUDA_SUCCESS && place == r.begin) continue;
      if (result == CUDA_SUCCESS) real().cuMemAddressFree(place, r.size);
      return report->fail(
          kExitIncompatible,
          "device %d: the address range 0x%lx-0x%lx that the program's memory lives in cannot be "
          "reserved here (driver error %d, got 0x%lx)",
          device, r.begin, r.begin + r.size, static_cast<int>(result),
          static_cast<unsigned long>(place));
    }
    for (Chunk* chunk = memory->arena.first_chunk(); chunk;
         chunk = memory->arena.next_chunk(chunk)) {
      int error = backing.commit(chunk->begin, chunk->size, &chunk->handle);
      if (!error) continue;
      size_t free_bytes = 0, total = 0;
      real().cuMemGetInfo_v2(&free_bytes, &total);
      return report->fail(
          kExitIncompatible,
          "device %d: %lu bytes of the program's %lu bytes of device memory cannot be allocated "
          "(driver error %d, %lu bytes free)",
          device, chunk->size, memory->arena.committed_bytes(), error,
          static_cast<unsigned long>(free_bytes));
    }
  }
  return true;
}

int let_access(int owner, int device, bool allowed) {
  DeviceMemory* memory = device_memory(owner);
  if (!memory || !memory->has_vmm || device < 0 || device >= kMaxDevices) return 0;
  MutexLock guard(memory->lock);
  VmmBacking& backing = memory->backing;
  uint32_t before = backing.peers;
  backing.peers = allowed ? before | (1u << device) : before & ~(1u << device);
  backing.peers |= 1u << owner;
  if (backing.peers == before) return 0;
  for (Chunk* chunk = memory->arena.first_chunk(); chunk; chunk = memory->arena.next_chunk(chunk)) {
    int error = backing.allow_access(chunk->begin, chunk->size);
    if (!allowed) {
      CUmemAccessDesc none = {};
      none.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
      none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      real().cuMemSetAccess(chunk->begin, chunk->size, &none, 1);
    } else if (error) {
      backing.peers = before;
      return error;
    }
  }
  return 0;
}

}  // namespace gpuckpt::device
