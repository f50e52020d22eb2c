#include "driver/context/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/context/context.h"
#include "driver/memory/pool.h"

namespace simgpu {
namespace {

// A GPU has the same UUID in every process: a restore compares them.
void make_uuid(int gpu, CUuuid* out) {
  Random r(0x67707563ull + static_cast<uint64_t>(gpu));
  for (int i = 0; i < 16; ++i) out->bytes[i] = static_cast<char>(r.next());
}

// Whether "GPU-..." (or its beginning) names the GPU.
bool names_gpu(const char* text, size_t length, int gpu) {
  CUuuid uuid;
  make_uuid(gpu, &uuid);
  char own[48];
  int n = snprintf(own, sizeof own, "GPU-");
  for (int i = 0; i < 16; ++i)
    n += snprintf(own + n, sizeof own - static_cast<size_t>(n), "%s%02x",
                  i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
  return length >= 8 && length <= static_cast<size_t>(n) && memcmp(own, text, length) == 0;
}

}  // namespace

// Parsed as the real driver does it: numbers or UUIDs; the first that does not exist ends the list.
std::vector<int> visible_gpus(const char* list, int gpus) {
  std::vector<int> out;
  for (const char* at = list; at && *at != 0;) {
    size_t length = strcspn(at, ",");
    int gpu = -1;
    if (*at >= '0' && *at <= '9') {
      gpu = atoi(at);
    } else {
      for (int i = 0; i < gpus && gpu < 0; ++i)
        if (names_gpu(at, length, i)) gpu = i;
    }
    if (gpu < 0 || gpu >= gpus) break;
    for (int known : out)
      if (known == gpu) return {};
    out.push_back(gpu);
    at += length + (at[length] == ',' ? 1 : 0);
  }
  if (!list)
    for (int i = 0; i < gpus; ++i) out.push_back(i);
  return out;
}

int gpu_of(const CUuuid& uuid, const Options& o) {
  for (int gpu = 0; gpu < o.devices; ++gpu) {
    CUuuid its;
    make_uuid(gpu, &its);
    if (memcmp(its.bytes, uuid.bytes, sizeof its.bytes) == 0) return gpu;
  }
  return -1;
}

Device::Device(int n, int gpu, const Options& o) : ordinal(n), sm_(o.sm) {
  snprintf(name, sizeof name, "gpuckpt simulated GPU");
  become(gpu, o);
}

void Device::become(int gpu, const Options& o) {
  total_ = gpu == o.devices - 1 && o.last_memory ? o.last_memory : o.memory;
  make_uuid(gpu, &uuid);
}

bool Device::charge(uint64_t bytes) {
  uint64_t before = used_.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes <= total_ && before + bytes >= before) return true;
  discharge(bytes);
  return false;
}

Device* device_of(CUdevice ordinal) {
  State* s = state();
  if (!s || ordinal < 0 || static_cast<size_t>(ordinal) >= s->devices.size()) return nullptr;
  return s->devices[static_cast<size_t>(ordinal)];
}

namespace {

// Attributes that depend neither on the compute capability nor on the ordinal. An attribute that is
// neither here nor in Device::attribute is 0: the device lacks the feature.
constexpr struct {
  CUdevice_attribute id;
  int value;
} kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 * 1024},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 * 1024},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768},
    {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 134213632},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
};

}  // namespace

int Device::attribute(CUdevice_attribute id) const {
  switch (static_cast<int>(id)) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return kMultiprocessors;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 0x10 + ordinal;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return threads_per_sm();
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return sm_ / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return sm_ % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return shared_per_sm();
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      return ordinal;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return shared_optin();
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return blocks_per_sm();
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
      return sm_ >= 90;
    default:
      break;
  }
  for (const auto& a : kAttributes)
    if (a.id == id) return a.value;
  return 0;
}

}  // namespace simgpu

using namespace simgpu;

#define DEVICE(d, ordinal)        \
  Device* d = device_of(ordinal); \
  if (!d) return CUDA_ERROR_INVALID_DEVICE

SIMGPU_API cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(state()->devices.size());
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGet(CUdevice* out, int ordinal) {
  ENTER(cuDeviceGet);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, ordinal);
  *out = d->ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetName(char* name, int length, CUdevice dev) {
  ENTER(cuDeviceGetName);
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  snprintf(name, static_cast<size_t>(length), "%s", d->name);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetUuid(CUuuid* out, CUdevice dev) {
  ENTER(cuDeviceGetUuid);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  *out = d->uuid;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetUuid_v2(CUuuid* out, CUdevice dev) { return cuDeviceGetUuid(out, dev); }

SIMGPU_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  ENTER(cuDeviceTotalMem_v2);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  *bytes = d->total();
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetAttribute(int* value, CUdevice_attribute id, CUdevice dev) {
  ENTER(cuDeviceGetAttribute);
  if (!value || id <= 0 || id >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  *value = d->attribute(id);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  ENTER(cuDeviceComputeCapability);
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  *major = d->sm() / 10;
  *minor = d->sm() % 10;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetProperties(CUdevprop* p, CUdevice dev) {
  ENTER(cuDeviceGetProperties);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  auto at = [&](CUdevice_attribute id) { return d->attribute(id); };
  memset(p, 0, sizeof *p);
  p->maxThreadsPerBlock = at(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    p->maxThreadsDim[i] =
        at(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    p->maxGridSize[i] = at(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
  }
  p->sharedMemPerBlock = at(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  p->totalConstantMemory = at(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  p->SIMDWidth = 32;
  p->memPitch = at(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  p->regsPerBlock = at(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  p->clockRate = at(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  p->textureAlign = at(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetPCIBusId(char* out, int length, CUdevice dev) {
  ENTER(cuDeviceGetPCIBusId);
  if (!out || length < 13) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  snprintf(out, static_cast<size_t>(length), "0000:%02x:00.0", 0x10 + d->ordinal);
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetByPCIBusId(CUdevice* out, const char* id) {
  ENTER(cuDeviceGetByPCIBusId);
  if (!out || !id) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3 &&
      sscanf(id, "%x:%x.%x", &bus, &device, &function) < 2)
    return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, static_cast<CUdevice>(bus) - 0x10);
  *out = d->ordinal;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceCanAccessPeer(int* can, CUdevice a, CUdevice b) {
  ENTER(cuDeviceCanAccessPeer);
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(x, a);
  DEVICE(y, b);
  *can = x != y;
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute id, CUdevice a, CUdevice b) {
  ENTER(cuDeviceGetP2PAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(x, a);
  DEVICE(y, b);
  if (x == y) return CUDA_ERROR_INVALID_DEVICE;
  switch (static_cast<int>(id)) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIMGPU_API cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format, unsigned channels,
                                              CUdevice dev) {
  ENTER(cuDeviceGetTexture1DLinearMaxWidth);
  if (!width || channels == 0) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  *width = static_cast<size_t>(d->attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetExecAffinitySupport(int* can, CUexecAffinityType, CUdevice dev) {
  ENTER(cuDeviceGetExecAffinitySupport);
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  DEVICE(d, dev);
  *can = 0;
  return CUDA_SUCCESS;
}

SIMGPU_API cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                      CUflushGPUDirectRDMAWritesScope) {
  ENTER(cuFlushGPUDirectRDMAWrites);
  CURRENT(c);
  return CUDA_ERROR_NOT_SUPPORTED;  // as its attribute says
}
