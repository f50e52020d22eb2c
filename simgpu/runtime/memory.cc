// Allocation, pools, host memory, pointer queries. Sizes of zero: cudaMalloc and cudaMallocHost
// answer a null pointer, as NVIDIA's do; the driver would refuse.
#include "runtime.h"

using namespace simgpu::runtime;

static CUdeviceptr* devicePtrOut(void** p) { return reinterpret_cast<CUdeviceptr*>(p); }

CUDART_API(cudaMalloc, (void** address, size_t bytes), (address, bytes)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return fromDriver(cu().cuMemAlloc(devicePtrOut(address), bytes));
}

CUDART_API(cudaFree, (void* address), (address)) {
  CUDART_TRY(ready());
  if (!address) return cudaSuccess;
  return fromDriver(cu().cuMemFree(devicePtr(address)));
}

// Rows start where a thread may load 4, 8 or 16 bytes at once; the driver takes the element size
// only as a hint.
static constexpr unsigned kPitchElementBytes = 16;

CUDART_API(cudaMallocPitch, (void** address, size_t* pitch, size_t width, size_t height),
           (address, pitch, width, height)) {
  if (!address || !pitch) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return fromDriver(
      cu().cuMemAllocPitch(devicePtrOut(address), pitch, width, height, kPitchElementBytes));
}

CUDART_API(cudaMalloc3D, (cudaPitchedPtr * out, cudaExtent extent), (out, extent)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  out->xsize = extent.width;
  out->ysize = extent.height;
  return fromDriver(cu().cuMemAllocPitch(devicePtrOut(&out->ptr), &out->pitch, extent.width,
                                         extent.height * extent.depth, kPitchElementBytes));
}

CUDART_API(cudaMallocManaged, (void** address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemAllocManaged(devicePtrOut(address), bytes, flags));
}

CUDART_API(cudaMemGetInfo, (size_t * free_bytes, size_t* total_bytes), (free_bytes, total_bytes)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemGetInfo(free_bytes, total_bytes));
}

// -------------------------------------------------------------------------------------- host
// memory

CUDART_API(cudaHostAlloc, (void** address, size_t bytes, unsigned flags), (address, bytes, flags)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return fromDriver(cu().cuMemHostAlloc(address, bytes, flags));
}

CUDART_API(cudaMallocHost, (void** address, size_t bytes), (address, bytes)) {
  return cudaHostAlloc_body(address, bytes, cudaHostAllocDefault);
}

CUDART_API(cudaFreeHost, (void* address), (address)) {
  CUDART_TRY(ready());
  if (!address) return cudaSuccess;
  return fromDriver(cu().cuMemFreeHost(address));
}

CUDART_API(cudaHostRegister, (void* address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemHostRegister(address, bytes, flags));
}

CUDART_API(cudaHostUnregister, (void* address), (address)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemHostUnregister(address));
}

CUDART_API(cudaHostGetDevicePointer, (void** out, void* address, unsigned flags),
           (out, address, flags)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemHostGetDevicePointer(devicePtrOut(out), address, flags));
}

CUDART_API(cudaHostGetFlags, (unsigned* flags, void* address), (flags, address)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemHostGetFlags(flags, address));
}

// ------------------------------------------------------------------------------- queries and
// advice

CUDART_API(cudaPointerGetAttributes, (cudaPointerAttributes * out, const void* address),
           (out, address)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  unsigned memory_type = 0, managed = 0;
  int ordinal = -2;
  CUdeviceptr device_pointer = 0;
  void* host_pointer = nullptr;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* values[] = {&memory_type, &managed, &ordinal, &device_pointer, &host_pointer};
  CUDART_TRY(fromDriver(cu().cuPointerGetAttributes(5, attributes, values, devicePtr(address))));
  *out = {};
  if (memory_type == 0) {  // nothing the driver knows: ordinary host memory
    out->type = cudaMemoryTypeUnregistered;
    out->device = cudaInvalidDeviceId;
    out->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  out->type = managed                             ? cudaMemoryTypeManaged
              : memory_type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeDevice;
  out->device = ordinal;
  out->devicePointer = reinterpret_cast<void*>(device_pointer);
  out->hostPointer = out->type == cudaMemoryTypeDevice ? nullptr : host_pointer;
  return cudaSuccess;
}

static CUmemLocation driverLocation(const cudaMemLocation& location) {
  CUmemLocation out = {};
  out.type = static_cast<CUmemLocationType>(location.type);
  out.id = location.id;
  return out;
}

CUDART_API(cudaMemAdvise,
           (const void* address, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location),
           (address, bytes, advice, location)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemAdvise(devicePtr(address), bytes, static_cast<CUmem_advise>(advice),
                                     driverLocation(location)));
}

CUDART_API_PTSZ(cudaMemPrefetchAsync,
                (const void* address, size_t bytes, cudaMemLocation location, unsigned flags,
                 cudaStream_t stream),
                (address, bytes, location, flags, stream)) {
  CUDART_TRY(ready());
  return fromDriver(cu<F>().cuMemPrefetchAsync(devicePtr(address), bytes, driverLocation(location),
                                               flags, stream));
}

// Lists that the driver takes as they are.
static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));
static CUdeviceptr* driverAddresses(void** list) { return reinterpret_cast<CUdeviceptr*>(list); }
static CUmemLocation* driverLocations(cudaMemLocation* list) {
  return reinterpret_cast<CUmemLocation*>(list);
}

CUDART_API_PTSZ(cudaMemPrefetchBatchAsync,
                (void** addresses, size_t* bytes, size_t count, cudaMemLocation* places,
                 size_t* firsts, size_t place_count, unsigned long long flags, cudaStream_t stream),
                (addresses, bytes, count, places, firsts, place_count, flags, stream)) {
  CUDART_TRY(ready());
  return fromDriver(cu<F>().cuMemPrefetchBatchAsync(driverAddresses(addresses), bytes, count,
                                                    driverLocations(places), firsts, place_count,
                                                    flags, stream));
}

CUDART_API_PTSZ(cudaMemDiscardBatchAsync,
                (void** addresses, size_t* bytes, size_t count, unsigned long long flags,
                 cudaStream_t stream),
                (addresses, bytes, count, flags, stream)) {
  CUDART_TRY(ready());
  return fromDriver(
      cu<F>().cuMemDiscardBatchAsync(driverAddresses(addresses), bytes, count, flags, stream));
}

CUDART_API_PTSZ(cudaMemDiscardAndPrefetchBatchAsync,
                (void** addresses, size_t* bytes, size_t count, cudaMemLocation* places,
                 size_t* firsts, size_t place_count, unsigned long long flags, cudaStream_t stream),
                (addresses, bytes, count, places, firsts, place_count, flags, stream)) {
  CUDART_TRY(ready());
  return fromDriver(cu<F>().cuMemDiscardAndPrefetchBatchAsync(driverAddresses(addresses), bytes,
                                                              count, driverLocations(places),
                                                              firsts, place_count, flags, stream));
}

CUDART_API(cudaMemRangeGetAttribute,
           (void* data, size_t data_bytes, cudaMemRangeAttribute attribute, const void* address,
            size_t bytes),
           (data, data_bytes, attribute, address, bytes)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemRangeGetAttribute(
      data, data_bytes, static_cast<CUmem_range_attribute>(attribute), devicePtr(address), bytes));
}

CUDART_API(cudaMemRangeGetAttributes,
           (void** data, size_t* data_bytes, cudaMemRangeAttribute* attributes, size_t count,
            const void* address, size_t bytes),
           (data, data_bytes, attributes, count, address, bytes)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemRangeGetAttributes(
      data, data_bytes, reinterpret_cast<CUmem_range_attribute*>(attributes), count,
      devicePtr(address), bytes));
}

// --------------------------------------------------------------------- stream-ordered memory,
// pools

CUDART_API_PTSZ(cudaMallocAsync, (void** address, size_t bytes, cudaStream_t stream),
                (address, bytes, stream)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return fromDriver(cu<F>().cuMemAllocAsync(devicePtrOut(address), bytes, stream));
}

CUDART_API_PTSZ(cudaMallocFromPoolAsync,
                (void** address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
                (address, bytes, pool, stream)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return fromDriver(cu<F>().cuMemAllocFromPoolAsync(devicePtrOut(address), bytes, pool, stream));
}

CUDART_API_PTSZ(cudaFreeAsync, (void* address, cudaStream_t stream), (address, stream)) {
  CUDART_TRY(ready());
  if (!address) return cudaSuccess;
  return fromDriver(cu<F>().cuMemFreeAsync(devicePtr(address), stream));
}

CUDART_API(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int ordinal), (pool, ordinal)) {
  CUDART_TRY(driverReady());
  if (!validDevice(ordinal)) return cudaErrorInvalidDevice;
  return fromDriver(cu().cuDeviceGetDefaultMemPool(pool, deviceOf(ordinal)));
}

CUDART_API(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int ordinal), (pool, ordinal)) {
  CUDART_TRY(driverReady());
  if (!validDevice(ordinal)) return cudaErrorInvalidDevice;
  return fromDriver(cu().cuDeviceGetMemPool(pool, deviceOf(ordinal)));
}

CUDART_API(cudaDeviceSetMemPool, (int ordinal, cudaMemPool_t pool), (ordinal, pool)) {
  CUDART_TRY(driverReady());
  if (!validDevice(ordinal)) return cudaErrorInvalidDevice;
  return fromDriver(cu().cuDeviceSetMemPool(deviceOf(ordinal), pool));
}

CUDART_API(cudaMemGetDefaultMemPool,
           (cudaMemPool_t * pool, cudaMemLocation* location, cudaMemAllocationType type),
           (pool, location, type)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(driverReady());
  CUmemLocation driver_location = driverLocation(*location);
  return fromDriver(
      cu().cuMemGetDefaultMemPool(pool, &driver_location, static_cast<CUmemAllocationType>(type)));
}

CUDART_API(cudaMemGetMemPool,
           (cudaMemPool_t * pool, cudaMemLocation* location, cudaMemAllocationType type),
           (pool, location, type)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(driverReady());
  CUmemLocation driver_location = driverLocation(*location);
  return fromDriver(
      cu().cuMemGetMemPool(pool, &driver_location, static_cast<CUmemAllocationType>(type)));
}

CUDART_API(cudaMemSetMemPool,
           (cudaMemLocation * location, cudaMemAllocationType type, cudaMemPool_t pool),
           (location, type, pool)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(driverReady());
  CUmemLocation driver_location = driverLocation(*location);
  return fromDriver(
      cu().cuMemSetMemPool(&driver_location, static_cast<CUmemAllocationType>(type), pool));
}

CUDART_API(cudaMemPoolCreate, (cudaMemPool_t * pool, const cudaMemPoolProps* props),
           (pool, props)) {
  if (!pool || !props) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUmemPoolProps driver_props = {};
  driver_props.allocType = static_cast<CUmemAllocationType>(props->allocType);
  driver_props.handleTypes = static_cast<CUmemAllocationHandleType>(props->handleTypes);
  driver_props.location = driverLocation(props->location);
  driver_props.win32SecurityAttributes = props->win32SecurityAttributes;
  driver_props.maxSize = props->maxSize;
  driver_props.usage = props->usage;
  return fromDriver(cu().cuMemPoolCreate(pool, &driver_props));
}

CUDART_API(cudaMemPoolDestroy, (cudaMemPool_t pool), (pool)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemPoolDestroy(pool));
}

CUDART_API(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), (pool, keep)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemPoolTrimTo(pool, keep));
}

CUDART_API(cudaMemPoolSetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value),
           (pool, attribute, value)) {
  CUDART_TRY(ready());
  return fromDriver(
      cu().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value));
}

CUDART_API(cudaMemPoolGetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value),
           (pool, attribute, value)) {
  CUDART_TRY(ready());
  return fromDriver(
      cu().cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value));
}

static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));

CUDART_API(cudaMemPoolSetAccess, (cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count),
           (pool, list, count)) {
  CUDART_TRY(ready());
  return fromDriver(
      cu().cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count));
}

CUDART_API(cudaMemPoolGetAccess,
           (cudaMemAccessFlags * flags, cudaMemPool_t pool, cudaMemLocation* location),
           (flags, pool, location)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUmemLocation driver_location = driverLocation(*location);
  return fromDriver(
      cu().cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), pool, &driver_location));
}

CUDART_API(cudaMemPoolExportToShareableHandle,
           (void* handle, cudaMemPool_t pool, cudaMemAllocationHandleType type, unsigned flags),
           (handle, pool, type, flags)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemPoolExportToShareableHandle(
      handle, pool, static_cast<CUmemAllocationHandleType>(type), flags));
}

CUDART_API(cudaMemPoolImportFromShareableHandle,
           (cudaMemPool_t * pool, void* handle, cudaMemAllocationHandleType type, unsigned flags),
           (pool, handle, type, flags)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemPoolImportFromShareableHandle(
      pool, handle, static_cast<CUmemAllocationHandleType>(type), flags));
}

static_assert(sizeof(cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData));

CUDART_API(cudaMemPoolExportPointer, (cudaMemPoolPtrExportData * out, void* address),
           (out, address)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemPoolExportPointer(reinterpret_cast<CUmemPoolPtrExportData*>(out),
                                                devicePtr(address)));
}

CUDART_API(cudaMemPoolImportPointer,
           (void** address, cudaMemPool_t pool, cudaMemPoolPtrExportData* data),
           (address, pool, data)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuMemPoolImportPointer(devicePtrOut(address), pool,
                                                reinterpret_cast<CUmemPoolPtrExportData*>(data)));
}

// ----------------------------------------------------------------------------------------------
// IPC

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

CUDART_API(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* address), (handle, address)) {
  CUDART_TRY(ready());
  return fromDriver(
      cu().cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), devicePtr(address)));
}

CUDART_API(cudaIpcOpenMemHandle, (void** address, cudaIpcMemHandle_t handle, unsigned flags),
           (address, handle, flags)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuIpcOpenMemHandle(
      devicePtrOut(address), reinterpret_cast<const CUipcMemHandle&>(handle), flags));
}

CUDART_API(cudaIpcCloseMemHandle, (void* address), (address)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuIpcCloseMemHandle(devicePtr(address)));
}

CUDART_API(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event),
           (handle, event)) {
  CUDART_TRY(ready());
  return fromDriver(cu().cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event));
}

CUDART_API(cudaIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle),
           (event, handle)) {
  CUDART_TRY(ready());
  return fromDriver(
      cu().cuIpcOpenEventHandle(event, reinterpret_cast<const CUipcEventHandle&>(handle)));
}
