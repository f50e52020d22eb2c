// Device queries, limits, peers, driver entry points.
#include <cuda_profiler_api.h>
#include <string.h>

#include "runtime.h"

using namespace simgpu::runtime;

namespace {

// Reads attributes of one device; remembers the first failure.
class AttributeReader {
 public:
  explicit AttributeReader(CUdevice device) : device_(device) {}

  int operator()(CUdevice_attribute attribute) {
    int value = 0;
    CUresult result = cu().cuDeviceGetAttribute(&value, attribute, device_);
    if (result_ == CUDA_SUCCESS) result_ = result;
    return value;
  }
  CUresult result() const { return result_; }

 private:
  CUdevice device_;
  CUresult result_ = CUDA_SUCCESS;
};

#define ATTRIBUTE(name) get(CU_DEVICE_ATTRIBUTE_##name)

void fill_limits(AttributeReader& get, cudaDeviceProp* p) {
  p->sharedMemPerBlock = ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK);
  p->regsPerBlock = ATTRIBUTE(MAX_REGISTERS_PER_BLOCK);
  p->warpSize = ATTRIBUTE(WARP_SIZE);
  p->memPitch = ATTRIBUTE(MAX_PITCH);
  p->maxThreadsPerBlock = ATTRIBUTE(MAX_THREADS_PER_BLOCK);
  p->maxThreadsDim[0] = ATTRIBUTE(MAX_BLOCK_DIM_X);
  p->maxThreadsDim[1] = ATTRIBUTE(MAX_BLOCK_DIM_Y);
  p->maxThreadsDim[2] = ATTRIBUTE(MAX_BLOCK_DIM_Z);
  p->maxGridSize[0] = ATTRIBUTE(MAX_GRID_DIM_X);
  p->maxGridSize[1] = ATTRIBUTE(MAX_GRID_DIM_Y);
  p->maxGridSize[2] = ATTRIBUTE(MAX_GRID_DIM_Z);
  p->totalConstMem = ATTRIBUTE(TOTAL_CONSTANT_MEMORY);
  p->major = ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
  p->minor = ATTRIBUTE(COMPUTE_CAPABILITY_MINOR);
  p->multiProcessorCount = ATTRIBUTE(MULTIPROCESSOR_COUNT);
  p->maxThreadsPerMultiProcessor = ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR);
  p->sharedMemPerMultiprocessor = ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  p->regsPerMultiprocessor = ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR);
  p->sharedMemPerBlockOptin = ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  p->reservedSharedMemPerBlock = ATTRIBUTE(RESERVED_SHARED_MEMORY_PER_BLOCK);
  p->maxBlocksPerMultiProcessor = ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR);
  p->l2CacheSize = ATTRIBUTE(L2_CACHE_SIZE);
  p->persistingL2CacheMaxSize = ATTRIBUTE(MAX_PERSISTING_L2_CACHE_SIZE);
  p->accessPolicyMaxWindowSize = ATTRIBUTE(MAX_ACCESS_POLICY_WINDOW_SIZE);
  p->memoryBusWidth = ATTRIBUTE(GLOBAL_MEMORY_BUS_WIDTH);
}

void fill_texture_limits(AttributeReader& get, cudaDeviceProp* p) {
  p->textureAlignment = ATTRIBUTE(TEXTURE_ALIGNMENT);
  p->texturePitchAlignment = ATTRIBUTE(TEXTURE_PITCH_ALIGNMENT);
  p->surfaceAlignment = ATTRIBUTE(SURFACE_ALIGNMENT);
  p->maxTexture1D = ATTRIBUTE(MAXIMUM_TEXTURE1D_WIDTH);
  p->maxTexture1DMipmap = ATTRIBUTE(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH);
  p->maxTexture2D[0] = ATTRIBUTE(MAXIMUM_TEXTURE2D_WIDTH);
  p->maxTexture2D[1] = ATTRIBUTE(MAXIMUM_TEXTURE2D_HEIGHT);
  p->maxTexture2DMipmap[0] = ATTRIBUTE(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH);
  p->maxTexture2DMipmap[1] = ATTRIBUTE(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT);
  p->maxTexture2DLinear[0] = ATTRIBUTE(MAXIMUM_TEXTURE2D_LINEAR_WIDTH);
  p->maxTexture2DLinear[1] = ATTRIBUTE(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT);
  p->maxTexture2DLinear[2] = ATTRIBUTE(MAXIMUM_TEXTURE2D_LINEAR_PITCH);
  p->maxTexture2DGather[0] = ATTRIBUTE(MAXIMUM_TEXTURE2D_GATHER_WIDTH);
  p->maxTexture2DGather[1] = ATTRIBUTE(MAXIMUM_TEXTURE2D_GATHER_HEIGHT);
  p->maxTexture3D[0] = ATTRIBUTE(MAXIMUM_TEXTURE3D_WIDTH);
  p->maxTexture3D[1] = ATTRIBUTE(MAXIMUM_TEXTURE3D_HEIGHT);
  p->maxTexture3D[2] = ATTRIBUTE(MAXIMUM_TEXTURE3D_DEPTH);
  p->maxTexture3DAlt[0] = ATTRIBUTE(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE);
  p->maxTexture3DAlt[1] = ATTRIBUTE(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE);
  p->maxTexture3DAlt[2] = ATTRIBUTE(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE);
  p->maxTextureCubemap = ATTRIBUTE(MAXIMUM_TEXTURECUBEMAP_WIDTH);
  p->maxTexture1DLayered[0] = ATTRIBUTE(MAXIMUM_TEXTURE1D_LAYERED_WIDTH);
  p->maxTexture1DLayered[1] = ATTRIBUTE(MAXIMUM_TEXTURE1D_LAYERED_LAYERS);
  p->maxTexture2DLayered[0] = ATTRIBUTE(MAXIMUM_TEXTURE2D_LAYERED_WIDTH);
  p->maxTexture2DLayered[1] = ATTRIBUTE(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT);
  p->maxTexture2DLayered[2] = ATTRIBUTE(MAXIMUM_TEXTURE2D_LAYERED_LAYERS);
  p->maxTextureCubemapLayered[0] = ATTRIBUTE(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH);
  p->maxTextureCubemapLayered[1] = ATTRIBUTE(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS);
  p->maxSurface1D = ATTRIBUTE(MAXIMUM_SURFACE1D_WIDTH);
  p->maxSurface2D[0] = ATTRIBUTE(MAXIMUM_SURFACE2D_WIDTH);
  p->maxSurface2D[1] = ATTRIBUTE(MAXIMUM_SURFACE2D_HEIGHT);
  p->maxSurface3D[0] = ATTRIBUTE(MAXIMUM_SURFACE3D_WIDTH);
  p->maxSurface3D[1] = ATTRIBUTE(MAXIMUM_SURFACE3D_HEIGHT);
  p->maxSurface3D[2] = ATTRIBUTE(MAXIMUM_SURFACE3D_DEPTH);
  p->maxSurface1DLayered[0] = ATTRIBUTE(MAXIMUM_SURFACE1D_LAYERED_WIDTH);
  p->maxSurface1DLayered[1] = ATTRIBUTE(MAXIMUM_SURFACE1D_LAYERED_LAYERS);
  p->maxSurface2DLayered[0] = ATTRIBUTE(MAXIMUM_SURFACE2D_LAYERED_WIDTH);
  p->maxSurface2DLayered[1] = ATTRIBUTE(MAXIMUM_SURFACE2D_LAYERED_HEIGHT);
  p->maxSurface2DLayered[2] = ATTRIBUTE(MAXIMUM_SURFACE2D_LAYERED_LAYERS);
  p->maxSurfaceCubemap = ATTRIBUTE(MAXIMUM_SURFACECUBEMAP_WIDTH);
  p->maxSurfaceCubemapLayered[0] = ATTRIBUTE(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH);
  p->maxSurfaceCubemapLayered[1] = ATTRIBUTE(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS);
}

void fill_abilities(AttributeReader& get, cudaDeviceProp* p) {
  p->integrated = ATTRIBUTE(INTEGRATED);
  p->canMapHostMemory = ATTRIBUTE(CAN_MAP_HOST_MEMORY);
  p->concurrentKernels = ATTRIBUTE(CONCURRENT_KERNELS);
  p->ECCEnabled = ATTRIBUTE(ECC_ENABLED);
  p->pciBusID = ATTRIBUTE(PCI_BUS_ID);
  p->pciDeviceID = ATTRIBUTE(PCI_DEVICE_ID);
  p->pciDomainID = ATTRIBUTE(PCI_DOMAIN_ID);
  p->tccDriver = ATTRIBUTE(TCC_DRIVER);
  p->asyncEngineCount = ATTRIBUTE(ASYNC_ENGINE_COUNT);
  p->unifiedAddressing = ATTRIBUTE(UNIFIED_ADDRESSING);
  p->streamPrioritiesSupported = ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED);
  p->globalL1CacheSupported = ATTRIBUTE(GLOBAL_L1_CACHE_SUPPORTED);
  p->localL1CacheSupported = ATTRIBUTE(LOCAL_L1_CACHE_SUPPORTED);
  p->managedMemory = ATTRIBUTE(MANAGED_MEMORY);
  p->isMultiGpuBoard = ATTRIBUTE(MULTI_GPU_BOARD);
  p->multiGpuBoardGroupID = ATTRIBUTE(MULTI_GPU_BOARD_GROUP_ID);
  p->hostNativeAtomicSupported = ATTRIBUTE(HOST_NATIVE_ATOMIC_SUPPORTED);
  p->pageableMemoryAccess = ATTRIBUTE(PAGEABLE_MEMORY_ACCESS);
  p->concurrentManagedAccess = ATTRIBUTE(CONCURRENT_MANAGED_ACCESS);
  p->computePreemptionSupported = ATTRIBUTE(COMPUTE_PREEMPTION_SUPPORTED);
  p->canUseHostPointerForRegisteredMem = ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  p->cooperativeLaunch = ATTRIBUTE(COOPERATIVE_LAUNCH);
  p->pageableMemoryAccessUsesHostPageTables =
      ATTRIBUTE(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  p->directManagedMemAccessFromHost = ATTRIBUTE(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
  p->hostRegisterSupported = ATTRIBUTE(HOST_REGISTER_SUPPORTED);
  p->sparseCudaArraySupported = ATTRIBUTE(SPARSE_CUDA_ARRAY_SUPPORTED);
  p->hostRegisterReadOnlySupported = ATTRIBUTE(READ_ONLY_HOST_REGISTER_SUPPORTED);
  p->timelineSemaphoreInteropSupported = ATTRIBUTE(TIMELINE_SEMAPHORE_INTEROP_SUPPORTED);
  p->memoryPoolsSupported = ATTRIBUTE(MEMORY_POOLS_SUPPORTED);
  p->gpuDirectRDMASupported = ATTRIBUTE(GPU_DIRECT_RDMA_SUPPORTED);
  p->gpuDirectRDMAFlushWritesOptions = ATTRIBUTE(GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  p->gpuDirectRDMAWritesOrdering = ATTRIBUTE(GPU_DIRECT_RDMA_WRITES_ORDERING);
  p->memoryPoolSupportedHandleTypes = ATTRIBUTE(MEMPOOL_SUPPORTED_HANDLE_TYPES);
  p->deferredMappingCudaArraySupported = ATTRIBUTE(DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED);
  p->ipcEventSupported = ATTRIBUTE(IPC_EVENT_SUPPORTED);
  p->clusterLaunch = ATTRIBUTE(CLUSTER_LAUNCH);
  p->unifiedFunctionPointers = ATTRIBUTE(UNIFIED_FUNCTION_POINTERS);
  p->deviceNumaConfig = ATTRIBUTE(NUMA_CONFIG);
  p->deviceNumaId = ATTRIBUTE(NUMA_ID);
  p->mpsEnabled = ATTRIBUTE(MPS_ENABLED);
  p->hostNumaId = ATTRIBUTE(HOST_NUMA_ID);
  p->gpuPciDeviceID = ATTRIBUTE(GPU_PCI_DEVICE_ID);
  p->gpuPciSubsystemID = ATTRIBUTE(GPU_PCI_SUBSYSTEM_ID);
  p->hostNumaMultinodeIpcSupported = ATTRIBUTE(HOST_NUMA_MULTINODE_IPC_SUPPORTED);
}

#undef ATTRIBUTE

}  // namespace

CUDART_API(cudaGetDeviceProperties, (cudaDeviceProp * p, int ordinal), (p, ordinal)) {
  if (!p) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  CUdevice device = device_of(ordinal);
  memset(p, 0, sizeof(*p));
  CUDART_TRY(from_driver(cu().cuDeviceGetName(p->name, sizeof(p->name), device)));
  CUDART_TRY(from_driver(cu().cuDeviceGetUuid(&p->uuid, device)));
  CUDART_TRY(from_driver(cu().cuDeviceTotalMem(&p->totalGlobalMem, device)));
  AttributeReader get(device);
  fill_limits(get, p);
  fill_texture_limits(get, p);
  fill_abilities(get, p);
  return from_driver(get.result());
}

CUDART_API(cudaDeviceGetAttribute, (int* value, cudaDeviceAttr attribute, int ordinal),
           (value, attribute, ordinal)) {
  if (!value) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute),
                                               device_of(ordinal)));
}

// The first device that has all that the caller filled in; device 0 when none has.
CUDART_API(cudaChooseDevice, (int* ordinal, const cudaDeviceProp* wanted), (ordinal, wanted)) {
  if (!ordinal || !wanted) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  *ordinal = 0;
  for (int i = 0; i < device_count(); ++i) {
    cudaDeviceProp p;
    CUDART_TRY(cudaGetDeviceProperties_body(&p, i));
    int version = 10 * p.major + p.minor, least = 10 * wanted->major + wanted->minor;
    if (version >= least && p.totalGlobalMem >= wanted->totalGlobalMem &&
        p.multiProcessorCount >= wanted->multiProcessorCount &&
        (wanted->name[0] == '\0' || strcmp(p.name, wanted->name) == 0)) {
      *ordinal = i;
      break;
    }
  }
  return cudaSuccess;
}

CUDART_API(cudaDeviceGetP2PAttribute, (int* value, cudaDeviceP2PAttr attribute, int from, int to),
           (value, attribute, from, to)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(from) || !valid_device(to)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGetP2PAttribute(
      value, static_cast<CUdevice_P2PAttribute>(attribute), device_of(from), device_of(to)));
}

CUDART_API(cudaDeviceGetPCIBusId, (char* id, int bytes, int ordinal), (id, bytes, ordinal)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGetPCIBusId(id, bytes, device_of(ordinal)));
}

CUDART_API(cudaDeviceGetByPCIBusId, (int* ordinal, const char* id), (ordinal, id)) {
  if (!ordinal) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  CUdevice device;
  CUDART_TRY(from_driver(cu().cuDeviceGetByPCIBusId(&device, id)));
  for (int i = 0; i < device_count(); ++i) {
    if (device_of(i) == device) *ordinal = i;
  }
  return cudaSuccess;
}

// ------------------------------------------------------------------------------- limits,
// configuration

CUDART_API(cudaDeviceGetLimit, (size_t * value, cudaLimit limit), (value, limit)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxGetLimit(value, static_cast<CUlimit>(limit)));
}

CUDART_API(cudaDeviceSetLimit, (cudaLimit limit, size_t value), (limit, value)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxSetLimit(static_cast<CUlimit>(limit), value));
}

CUDART_API(cudaDeviceGetCacheConfig, (cudaFuncCache * config), (config)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxGetCacheConfig(reinterpret_cast<CUfunc_cache*>(config)));
}

CUDART_API(cudaDeviceSetCacheConfig, (cudaFuncCache config), (config)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxSetCacheConfig(static_cast<CUfunc_cache>(config)));
}

CUDART_API(cudaDeviceGetStreamPriorityRange, (int* least, int* greatest), (least, greatest)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxGetStreamPriorityRange(least, greatest));
}

CUDART_API(cudaCtxResetPersistingL2Cache, (), ()) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxResetPersistingL2Cache());
}

CUDART_API(cudaProfilerStart, (), ()) {
  CUDART_TRY(ready());
  return from_driver(cu().cuProfilerStart());
}

CUDART_API(cudaProfilerStop, (), ()) {
  CUDART_TRY(ready());
  return from_driver(cu().cuProfilerStop());
}

// -----------------------------------------------------------------------------------------------
// peers

CUDART_API(cudaDeviceCanAccessPeer, (int* can, int ordinal, int peer), (can, ordinal, peer)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal) || !valid_device(peer)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceCanAccessPeer(can, device_of(ordinal), device_of(peer)));
}

CUDART_API(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags)) {
  CUDART_TRY(ready());
  CUcontext context;
  CUDART_TRY(primary_context(peer, &context));
  return from_driver(cu().cuCtxEnablePeerAccess(context, flags));
}

CUDART_API(cudaDeviceDisablePeerAccess, (int peer), (peer)) {
  CUDART_TRY(ready());
  CUcontext context;
  CUDART_TRY(primary_context(peer, &context));
  return from_driver(cu().cuCtxDisablePeerAccess(context));
}

// ---------------------------------------------------------------------------------- driver entry
// points

static cudaError_t entry_point(const char* symbol, void** function, unsigned version,
                               unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  if (!symbol || !function) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  CUdriverProcAddressQueryResult driver_status = CU_GET_PROC_ADDRESS_SUCCESS;
  CUresult result =
      cu().cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &driver_status);
  if (status) *status = static_cast<cudaDriverEntryPointQueryResult>(driver_status);
  return from_driver(result);
}

// Default flags mean the default stream the calling program was built with.
template <Flavour F>
static unsigned long long entry_flags(unsigned long long flags) {
  if (F == kPerThread && flags == cudaEnableDefault) return cudaEnablePerThreadDefaultStream;
  return flags;
}

CUDART_API_PTSZ(cudaGetDriverEntryPointByVersion,
                (const char* symbol, void** function, unsigned version, unsigned long long flags,
                 cudaDriverEntryPointQueryResult* status),
                (symbol, function, version, flags, status)) {
  return entry_point(symbol, function, version, entry_flags<F>(flags), status);
}

CUDART_API_PTSZ(cudaGetDriverEntryPoint,
                (const char* symbol, void** function, unsigned long long flags,
                 cudaDriverEntryPointQueryResult* status),
                (symbol, function, flags, status)) {
  return entry_point(symbol, function, kRuntimeVersion, entry_flags<F>(flags), status);
}

// -----------------------------------------------------------------------------------------------
// functions that the driver calls, with its own names for the same types

CUDART_API(cudaDeviceRegisterAsyncNotification,
           (int device, cudaAsyncCallback function, void* data, cudaAsyncCallbackHandle_t* handle),
           (device, function, data, handle)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuDeviceRegisterAsyncNotification(
      device, reinterpret_cast<CUasyncCallback>(function), data,
      reinterpret_cast<CUasyncCallbackHandle*>(handle)));
}
CUDART_API(cudaDeviceUnregisterAsyncNotification, (int device, cudaAsyncCallbackHandle_t handle),
           (device, handle)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuDeviceUnregisterAsyncNotification(
      device, reinterpret_cast<CUasyncCallbackHandle>(handle)));
}

CUDART_API(cudaLogsRegisterCallback,
           (cudaLogsCallback_t function, void* data, cudaLogsCallbackHandle* handle),
           (function, data, handle)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuLogsRegisterCallback(reinterpret_cast<CUlogsCallback>(function), data, handle));
}
CUDART_API(cudaLogsUnregisterCallback, (cudaLogsCallbackHandle handle), (handle)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuLogsUnregisterCallback(handle));
}
