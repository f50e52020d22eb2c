// Allocation, pools, host memory, pointer queries. Sizes of zero: cudaMalloc and cudaMallocHost
// answer a null pointer, as NVIDIA's do; the driver would refuse.
#include "runtime.h"

using namespace simgpu::runtime;

static CUdeviceptr* device_ptr_out(void** p) { return reinterpret_cast<CUdeviceptr*>(p); }

CUDART_API(cudaMalloc, (void** address, size_t bytes), (address, bytes)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return from_driver(cu().cuMemAlloc(device_ptr_out(address), bytes));
}

CUDART_API(cudaFree, (void* address), (address)) {
  CUDART_TRY(ready());
  if (!address) return cudaSuccess;
  return from_driver(cu().cuMemFree(device_ptr(address)));
}

// Rows start where a thread may load 4, 8 or 16 bytes at once; the driver takes the element size
// only as a hint.
static constexpr unsigned kPitchElementBytes = 16;

CUDART_API(cudaMallocPitch, (void** address, size_t* pitch, size_t width, size_t height),
           (address, pitch, width, height)) {
  if (!address || !pitch) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(
      cu().cuMemAllocPitch(device_ptr_out(address), pitch, width, height, kPitchElementBytes));
}

CUDART_API(cudaMalloc3D, (cudaPitchedPtr * out, cudaExtent extent), (out, extent)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  out->xsize = extent.width;
  out->ysize = extent.height;
  return from_driver(cu().cuMemAllocPitch(device_ptr_out(&out->ptr), &out->pitch, extent.width,
                                          extent.height * extent.depth, kPitchElementBytes));
}

CUDART_API(cudaMallocManaged, (void** address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu().cuMemAllocManaged(device_ptr_out(address), bytes, flags));
}

CUDART_API(cudaMemGetInfo, (size_t * free_bytes, size_t* total_bytes), (free_bytes, total_bytes)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemGetInfo(free_bytes, total_bytes));
}

// -------------------------------------------------------------------------------------- host
// memory

CUDART_API(cudaHostAlloc, (void** address, size_t bytes, unsigned flags), (address, bytes, flags)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return from_driver(cu().cuMemHostAlloc(address, bytes, flags));
}

CUDART_API(cudaMallocHost, (void** address, size_t bytes), (address, bytes)) {
  return cudaHostAlloc_body(address, bytes, cudaHostAllocDefault);
}

CUDART_API(cudaFreeHost, (void* address), (address)) {
  CUDART_TRY(ready());
  if (!address) return cudaSuccess;
  return from_driver(cu().cuMemFreeHost(address));
}

CUDART_API(cudaHostRegister, (void* address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemHostRegister(address, bytes, flags));
}

CUDART_API(cudaHostUnregister, (void* address), (address)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemHostUnregister(address));
}

CUDART_API(cudaHostGetDevicePointer, (void** out, void* address, unsigned flags),
           (out, address, flags)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu().cuMemHostGetDevicePointer(device_ptr_out(out), address, flags));
}

CUDART_API(cudaHostGetFlags, (unsigned* flags, void* address), (flags, address)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemHostGetFlags(flags, address));
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
  CUDART_TRY(from_driver(cu().cuPointerGetAttributes(5, attributes, values, device_ptr(address))));
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

static CUmemLocation as_driver_location(const cudaMemLocation& location) {
  CUmemLocation out = {};
  out.type = static_cast<CUmemLocationType>(location.type);
  out.id = location.id;
  return out;
}

CUDART_API(cudaMemAdvise,
           (const void* address, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location),
           (address, bytes, advice, location)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemAdvise(device_ptr(address), bytes, static_cast<CUmem_advise>(advice),
                                      as_driver_location(location)));
}

CUDART_API_PTSZ(cudaMemPrefetchAsync,
                (const void* address, size_t bytes, cudaMemLocation location, unsigned flags,
                 cudaStream_t stream),
                (address, bytes, location, flags, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuMemPrefetchAsync(device_ptr(address), bytes,
                                                as_driver_location(location), flags, stream));
}

// Lists that the driver takes as they are.
static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));
static CUdeviceptr* driver_addresses(void** list) { return reinterpret_cast<CUdeviceptr*>(list); }
static CUmemLocation* driver_locations(cudaMemLocation* list) {
  return reinterpret_cast<CUmemLocation*>(list);
}

CUDART_API_PTSZ(cudaMemPrefetchBatchAsync,
                (void** addresses, size_t* bytes, size_t count, cudaMemLocation* places,
                 size_t* firsts, size_t place_count, unsigned long long flags, cudaStream_t stream),
                (addresses, bytes, count, places, firsts, place_count, flags, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuMemPrefetchBatchAsync(driver_addresses(addresses), bytes, count,
                                                     driver_locations(places), firsts, place_count,
                                                     flags, stream));
}

CUDART_API_PTSZ(cudaMemDiscardBatchAsync,
                (void** addresses, size_t* bytes, size_t count, unsigned long long flags,
                 cudaStream_t stream),
                (addresses, bytes, count, flags, stream)) {
  CUDART_TRY(ready());
  return from_driver(
      cu<F>().cuMemDiscardBatchAsync(driver_addresses(addresses), bytes, count, flags, stream));
}

CUDART_API_PTSZ(cudaMemDiscardAndPrefetchBatchAsync,
                (void** addresses, size_t* bytes, size_t count, cudaMemLocation* places,
                 size_t* firsts, size_t place_count, unsigned long long flags, cudaStream_t stream),
                (addresses, bytes, count, places, firsts, place_count, flags, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuMemDiscardAndPrefetchBatchAsync(driver_addresses(addresses), bytes,
                                                               count, driver_locations(places),
                                                               firsts, place_count, flags, stream));
}

CUDART_API(cudaMemRangeGetAttribute,
           (void* data, size_t data_bytes, cudaMemRangeAttribute attribute, const void* address,
            size_t bytes),
           (data, data_bytes, attribute, address, bytes)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemRangeGetAttribute(
      data, data_bytes, static_cast<CUmem_range_attribute>(attribute), device_ptr(address), bytes));
}

CUDART_API(cudaMemRangeGetAttributes,
           (void** data, size_t* data_bytes, cudaMemRangeAttribute* attributes, size_t count,
            const void* address, size_t bytes),
           (data, data_bytes, attributes, count, address, bytes)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemRangeGetAttributes(
      data, data_bytes, reinterpret_cast<CUmem_range_attribute*>(attributes), count,
      device_ptr(address), bytes));
}

// --------------------------------------------------------------------- stream-ordered memory,
// pools

CUDART_API_PTSZ(cudaMallocAsync, (void** address, size_t bytes, cudaStream_t stream),
                (address, bytes, stream)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuMemAllocAsync(device_ptr_out(address), bytes, stream));
}

CUDART_API_PTSZ(cudaMallocFromPoolAsync,
                (void** address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
                (address, bytes, pool, stream)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuMemAllocFromPoolAsync(device_ptr_out(address), bytes, pool, stream));
}

CUDART_API_PTSZ(cudaFreeAsync, (void* address, cudaStream_t stream), (address, stream)) {
  CUDART_TRY(ready());
  if (!address) return cudaSuccess;
  return from_driver(cu<F>().cuMemFreeAsync(device_ptr(address), stream));
}

CUDART_API(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int ordinal), (pool, ordinal)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGetDefaultMemPool(pool, device_of(ordinal)));
}

CUDART_API(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int ordinal), (pool, ordinal)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGetMemPool(pool, device_of(ordinal)));
}

CUDART_API(cudaDeviceSetMemPool, (int ordinal, cudaMemPool_t pool), (ordinal, pool)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceSetMemPool(device_of(ordinal), pool));
}

CUDART_API(cudaMemGetDefaultMemPool,
           (cudaMemPool_t * pool, cudaMemLocation* location, cudaMemAllocationType type),
           (pool, location, type)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  CUmemLocation driver_location = as_driver_location(*location);
  return from_driver(
      cu().cuMemGetDefaultMemPool(pool, &driver_location, static_cast<CUmemAllocationType>(type)));
}

CUDART_API(cudaMemGetMemPool,
           (cudaMemPool_t * pool, cudaMemLocation* location, cudaMemAllocationType type),
           (pool, location, type)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  CUmemLocation driver_location = as_driver_location(*location);
  return from_driver(
      cu().cuMemGetMemPool(pool, &driver_location, static_cast<CUmemAllocationType>(type)));
}

CUDART_API(cudaMemSetMemPool,
           (cudaMemLocation * location, cudaMemAllocationType type, cudaMemPool_t pool),
           (location, type, pool)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(driver_ready());
  CUmemLocation driver_location = as_driver_location(*location);
  return from_driver(
      cu().cuMemSetMemPool(&driver_location, static_cast<CUmemAllocationType>(type), pool));
}

CUDART_API(cudaMemPoolCreate, (cudaMemPool_t * pool, const cudaMemPoolProps* props),
           (pool, props)) {
  if (!pool || !props) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUmemPoolProps driver_props = {};
  driver_props.allocType = static_cast<CUmemAllocationType>(props->allocType);
  driver_props.handleTypes = static_cast<CUmemAllocationHandleType>(props->handleTypes);
  driver_props.location = as_driver_location(props->location);
  driver_props.win32SecurityAttributes = props->win32SecurityAttributes;
  driver_props.maxSize = props->maxSize;
  driver_props.usage = props->usage;
  return from_driver(cu().cuMemPoolCreate(pool, &driver_props));
}

CUDART_API(cudaMemPoolDestroy, (cudaMemPool_t pool), (pool)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemPoolDestroy(pool));
}

CUDART_API(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), (pool, keep)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemPoolTrimTo(pool, keep));
}

CUDART_API(cudaMemPoolSetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value),
           (pool, attribute, value)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value));
}

CUDART_API(cudaMemPoolGetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value),
           (pool, attribute, value)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value));
}

static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));

CUDART_API(cudaMemPoolSetAccess, (cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count),
           (pool, list, count)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count));
}

CUDART_API(cudaMemPoolGetAccess,
           (cudaMemAccessFlags * flags, cudaMemPool_t pool, cudaMemLocation* location),
           (flags, pool, location)) {
  if (!location) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUmemLocation driver_location = as_driver_location(*location);
  return from_driver(
      cu().cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), pool, &driver_location));
}

CUDART_API(cudaMemPoolExportToShareableHandle,
           (void* handle, cudaMemPool_t pool, cudaMemAllocationHandleType type, unsigned flags),
           (handle, pool, type, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemPoolExportToShareableHandle(
      handle, pool, static_cast<CUmemAllocationHandleType>(type), flags));
}

CUDART_API(cudaMemPoolImportFromShareableHandle,
           (cudaMemPool_t * pool, void* handle, cudaMemAllocationHandleType type, unsigned flags),
           (pool, handle, type, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemPoolImportFromShareableHandle(
      pool, handle, static_cast<CUmemAllocationHandleType>(type), flags));
}

static_assert(sizeof(cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData));

CUDART_API(cudaMemPoolExportPointer, (cudaMemPoolPtrExportData * out, void* address),
           (out, address)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemPoolExportPointer(reinterpret_cast<CUmemPoolPtrExportData*>(out),
                                                 device_ptr(address)));
}

CUDART_API(cudaMemPoolImportPointer,
           (void** address, cudaMemPool_t pool, cudaMemPoolPtrExportData* data),
           (address, pool, data)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMemPoolImportPointer(device_ptr_out(address), pool,
                                                 reinterpret_cast<CUmemPoolPtrExportData*>(data)));
}

// ----------------------------------------------------------------------------------------------
// IPC

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

CUDART_API(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* address), (handle, address)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), device_ptr(address)));
}

CUDART_API(cudaIpcOpenMemHandle, (void** address, cudaIpcMemHandle_t handle, unsigned flags),
           (address, handle, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuIpcOpenMemHandle(
      device_ptr_out(address), reinterpret_cast<const CUipcMemHandle&>(handle), flags));
}

CUDART_API(cudaIpcCloseMemHandle, (void* address), (address)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuIpcCloseMemHandle(device_ptr(address)));
}

CUDART_API(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event),
           (handle, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event));
}

CUDART_API(cudaIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle),
           (event, handle)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuIpcOpenEventHandle(event, reinterpret_cast<const CUipcEventHandle&>(handle)));
}
