// The driver functions the runtime uses, and how it finds them: dlopen("libcuda.so.1"), one dlsym
// for cuGetProcAddress_v2, then cuGetProcAddress_v2(name, version, flags) for each row below. A row
// has the version in which the wanted ABI appeared (cuMemAlloc of 3.2 is the 64-bit one) and, for
// calls that know a default stream, the version of its per-thread variant (asked for with flags 2),
// else 0.
#pragma once

#include <cuda.h>
#include <cudaProfiler.h>

namespace simgpu::runtime {

#define SIMGPU_RUNTIME_DRIVER_API(X)                               \
  X(cuInit, 2000, 0)                                               \
  X(cuDriverGetVersion, 2020, 0)                                   \
  X(cuGetProcAddress, 12000, 0)                                    \
  X(cuDeviceGet, 2000, 0)                                          \
  X(cuDeviceGetCount, 2000, 0)                                     \
  X(cuDeviceGetName, 2000, 0)                                      \
  X(cuDeviceGetUuid, 9020, 0)                                      \
  X(cuDeviceTotalMem, 3020, 0)                                     \
  X(cuDeviceGetAttribute, 2000, 0)                                 \
  X(cuDeviceGetP2PAttribute, 8000, 0)                              \
  X(cuDeviceGetByPCIBusId, 4010, 0)                                \
  X(cuDeviceGetPCIBusId, 4010, 0)                                  \
  X(cuDeviceGetDefaultMemPool, 11020, 0)                           \
  X(cuDeviceRegisterAsyncNotification, 12040, 0)                   \
  X(cuDeviceUnregisterAsyncNotification, 12040, 0)                 \
  X(cuLogsRegisterCallback, 12090, 0)                              \
  X(cuLogsUnregisterCallback, 12090, 0)                            \
  X(cuDeviceSetMemPool, 11020, 0)                                  \
  X(cuDeviceGetMemPool, 11020, 0)                                  \
  X(cuMemGetDefaultMemPool, 13000, 0)                              \
  X(cuMemGetMemPool, 13000, 0)                                     \
  X(cuMemSetMemPool, 13000, 0)                                     \
  X(cuDeviceCanAccessPeer, 4000, 0)                                \
  X(cuDevicePrimaryCtxRetain, 7000, 0)                             \
  X(cuDevicePrimaryCtxRelease, 7000, 0)                            \
  X(cuDevicePrimaryCtxSetFlags, 11000, 0)                          \
  X(cuDevicePrimaryCtxGetState, 7000, 0)                           \
  X(cuDevicePrimaryCtxReset, 7000, 0)                              \
  X(cuCtxSetCurrent, 4000, 0)                                      \
  X(cuCtxGetCurrent, 4000, 0)                                      \
  X(cuCtxGetDevice, 2000, 0)                                       \
  X(cuCtxSynchronize, 2000, 0)                                     \
  X(cuCtxGetLimit, 3010, 0)                                        \
  X(cuCtxSetLimit, 3010, 0)                                        \
  X(cuCtxGetCacheConfig, 3020, 0)                                  \
  X(cuCtxSetCacheConfig, 3020, 0)                                  \
  X(cuCtxGetStreamPriorityRange, 5050, 0)                          \
  X(cuCtxResetPersistingL2Cache, 11000, 0)                         \
  X(cuCtxEnablePeerAccess, 4000, 0)                                \
  X(cuCtxDisablePeerAccess, 4000, 0)                               \
  X(cuLibraryLoadData, 12000, 0)                                   \
  X(cuLibraryLoadFromFile, 12000, 0)                               \
  X(cuLibraryUnload, 12000, 0)                                     \
  X(cuLibraryGetKernel, 12000, 0)                                  \
  X(cuLibraryGetGlobal, 12000, 0)                                  \
  X(cuLibraryGetManaged, 12000, 0)                                 \
  X(cuLibraryGetUnifiedFunction, 12000, 0)                         \
  X(cuLibraryGetKernelCount, 12040, 0)                             \
  X(cuLibraryEnumerateKernels, 12040, 0)                           \
  X(cuKernelGetFunction, 12000, 0)                                 \
  X(cuKernelGetAttribute, 12000, 0)                                \
  X(cuKernelSetAttribute, 12000, 0)                                \
  X(cuKernelSetCacheConfig, 12000, 0)                              \
  X(cuKernelGetName, 12030, 0)                                     \
  X(cuKernelGetParamInfo, 12040, 0)                                \
  X(cuMemGetInfo, 3020, 0)                                         \
  X(cuMemAlloc, 3020, 0)                                           \
  X(cuMemAllocPitch, 3020, 0)                                      \
  X(cuMemAllocManaged, 6000, 0)                                    \
  X(cuMemFree, 3020, 0)                                            \
  X(cuMemHostAlloc, 2020, 0)                                       \
  X(cuMemFreeHost, 2000, 0)                                        \
  X(cuMemHostGetDevicePointer, 3020, 0)                            \
  X(cuMemHostGetFlags, 2030, 0)                                    \
  X(cuMemHostRegister, 6050, 0)                                    \
  X(cuMemHostUnregister, 4000, 0)                                  \
  X(cuMemAdvise, 12020, 0)                                         \
  X(cuMemPrefetchAsync, 12020, 12020)                              \
  X(cuMemPrefetchBatchAsync, 13000, 13000)                         \
  X(cuMemDiscardBatchAsync, 13000, 13000)                          \
  X(cuMemDiscardAndPrefetchBatchAsync, 13000, 13000)               \
  X(cuMemRangeGetAttribute, 8000, 0)                               \
  X(cuMemRangeGetAttributes, 8000, 0)                              \
  X(cuPointerGetAttributes, 7000, 0)                               \
  X(cuMemAllocAsync, 11020, 11020)                                 \
  X(cuMemAllocFromPoolAsync, 11020, 11020)                         \
  X(cuMemFreeAsync, 11020, 11020)                                  \
  X(cuMemPoolCreate, 11020, 0)                                     \
  X(cuMemPoolDestroy, 11020, 0)                                    \
  X(cuMemPoolTrimTo, 11020, 0)                                     \
  X(cuMemPoolSetAttribute, 11020, 0)                               \
  X(cuMemPoolGetAttribute, 11020, 0)                               \
  X(cuMemPoolSetAccess, 11020, 0)                                  \
  X(cuMemPoolGetAccess, 11020, 0)                                  \
  X(cuMemPoolExportToShareableHandle, 11020, 0)                    \
  X(cuMemPoolImportFromShareableHandle, 11020, 0)                  \
  X(cuMemPoolExportPointer, 11020, 0)                              \
  X(cuMemPoolImportPointer, 11020, 0)                              \
  X(cuMemcpy, 4000, 7000)                                          \
  X(cuMemcpyAsync, 4000, 7000)                                     \
  X(cuMemcpyPeer, 4000, 7000)                                      \
  X(cuMemcpyPeerAsync, 4000, 7000)                                 \
  X(cuMemcpyBatchAsync, 13000, 13000)                              \
  X(cuMemcpy3DBatchAsync, 13000, 13000)                            \
  X(cuMemcpyHtoD, 3020, 7000)                                      \
  X(cuMemcpyHtoDAsync, 3020, 7000)                                 \
  X(cuMemcpyDtoH, 3020, 7000)                                      \
  X(cuMemcpyDtoHAsync, 3020, 7000)                                 \
  X(cuMemcpyDtoD, 3020, 7000)                                      \
  X(cuMemcpyDtoDAsync, 3020, 7000)                                 \
  X(cuMemcpy2DUnaligned, 3020, 7000)                               \
  X(cuMemcpy2DAsync, 3020, 7000)                                   \
  X(cuMemcpy3D, 3020, 7000)                                        \
  X(cuMemcpy3DAsync, 3020, 7000)                                   \
  X(cuMemcpy3DPeer, 4000, 7000)                                    \
  X(cuMemcpy3DPeerAsync, 4000, 7000)                               \
  X(cuMemsetD8, 3020, 7000)                                        \
  X(cuMemsetD8Async, 3020, 7000)                                   \
  X(cuMemsetD2D8, 3020, 7000)                                      \
  X(cuMemsetD2D8Async, 3020, 7000)                                 \
  X(cuIpcGetEventHandle, 4010, 0)                                  \
  X(cuIpcOpenEventHandle, 4010, 0)                                 \
  X(cuIpcGetMemHandle, 4010, 0)                                    \
  X(cuIpcOpenMemHandle, 11000, 0)                                  \
  X(cuIpcCloseMemHandle, 4010, 0)                                  \
  X(cuLaunchKernel, 4000, 7000)                                    \
  X(cuLaunchKernelEx, 11060, 11060)                                \
  X(cuLaunchCooperativeKernel, 9000, 9000)                         \
  X(cuLaunchHostFunc, 10000, 10000)                                \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, 0) \
  X(cuOccupancyAvailableDynamicSMemPerBlock, 10020, 0)             \
  X(cuOccupancyMaxPotentialClusterSize, 11070, 0)                  \
  X(cuOccupancyMaxActiveClusters, 11070, 0)                        \
  X(cuEventCreate, 2000, 0)                                        \
  X(cuEventRecord, 2000, 7000)                                     \
  X(cuEventRecordWithFlags, 11010, 11010)                          \
  X(cuEventQuery, 2000, 0)                                         \
  X(cuEventSynchronize, 2000, 0)                                   \
  X(cuEventDestroy, 4000, 0)                                       \
  X(cuEventElapsedTime, 12080, 0)                                  \
  X(cuStreamCreate, 2000, 0)                                       \
  X(cuStreamCreateWithPriority, 5050, 0)                           \
  X(cuStreamDestroy, 4000, 0)                                      \
  X(cuStreamGetPriority, 5050, 7000)                               \
  X(cuStreamGetFlags, 5050, 7000)                                  \
  X(cuStreamGetId, 12000, 12000)                                   \
  X(cuStreamGetDevice, 12080, 12080)                               \
  X(cuStreamWaitEvent, 3020, 7000)                                 \
  X(cuStreamAddCallback, 5000, 7000)                               \
  X(cuStreamSynchronize, 2000, 7000)                               \
  X(cuStreamQuery, 2000, 7000)                                     \
  X(cuStreamAttachMemAsync, 6000, 7000)                            \
  X(cuStreamCopyAttributes, 11000, 11000)                          \
  X(cuStreamGetAttribute, 11000, 11000)                            \
  X(cuStreamSetAttribute, 11000, 11000)                            \
  X(cuStreamBeginCapture, 10010, 10010)                            \
  X(cuStreamEndCapture, 10000, 10000)                              \
  X(cuStreamIsCapturing, 10000, 10000)                             \
  X(cuStreamGetCaptureInfo, 12030, 12030)                          \
  X(cuThreadExchangeStreamCaptureMode, 10010, 0)                   \
  X(cuGraphCreate, 10000, 0)                                       \
  X(cuGraphInstantiateWithFlags, 11040, 0)                         \
  X(cuGraphUpload, 11010, 11010)                                   \
  X(cuGraphLaunch, 10000, 10000)                                   \
  X(cuGraphExecDestroy, 10000, 0)                                  \
  X(cuGraphDestroy, 10000, 0)                                      \
  X(cuDeviceGetGraphMemAttribute, 11040, 0)                        \
  X(cuDeviceGraphMemTrim, 11040, 0)                                \
  X(cuDeviceSetGraphMemAttribute, 11040, 0)                        \
  X(cuGraphAddChildGraphNode, 10000, 0)                            \
  X(cuGraphAddDependencies, 12030, 0)                              \
  X(cuGraphAddEmptyNode, 10000, 0)                                 \
  X(cuGraphAddEventRecordNode, 11010, 0)                           \
  X(cuGraphAddEventWaitNode, 11010, 0)                             \
  X(cuGraphAddHostNode, 10000, 0)                                  \
  X(cuGraphAddKernelNode, 12000, 0)                                \
  X(cuGraphAddMemAllocNode, 11040, 0)                              \
  X(cuGraphAddMemFreeNode, 11040, 0)                               \
  X(cuGraphAddMemcpyNode, 10000, 0)                                \
  X(cuGraphAddMemsetNode, 10000, 0)                                \
  X(cuGraphAddNode, 12030, 0)                                      \
  X(cuGraphChildGraphNodeGetGraph, 10000, 0)                       \
  X(cuGraphClone, 10000, 0)                                        \
  X(cuGraphConditionalHandleCreate, 12030, 0)                      \
  X(cuGraphDebugDotPrint, 11030, 0)                                \
  X(cuGraphDestroyNode, 10000, 0)                                  \
  X(cuGraphEventRecordNodeGetEvent, 11010, 0)                      \
  X(cuGraphEventRecordNodeSetEvent, 11010, 0)                      \
  X(cuGraphEventWaitNodeGetEvent, 11010, 0)                        \
  X(cuGraphEventWaitNodeSetEvent, 11010, 0)                        \
  X(cuGraphExecChildGraphNodeSetParams, 11010, 0)                  \
  X(cuGraphExecEventRecordNodeSetEvent, 11010, 0)                  \
  X(cuGraphExecEventWaitNodeSetEvent, 11010, 0)                    \
  X(cuGraphExecGetFlags, 12000, 0)                                 \
  X(cuGraphExecHostNodeSetParams, 10020, 0)                        \
  X(cuGraphExecKernelNodeSetParams, 12000, 0)                      \
  X(cuGraphExecMemcpyNodeSetParams, 10020, 0)                      \
  X(cuGraphExecMemsetNodeSetParams, 10020, 0)                      \
  X(cuGraphExecNodeSetParams, 12020, 0)                            \
  X(cuGraphExecUpdate, 12000, 0)                                   \
  X(cuGraphGetEdges, 12030, 0)                                     \
  X(cuGraphGetNodes, 10000, 0)                                     \
  X(cuGraphGetRootNodes, 10000, 0)                                 \
  X(cuGraphHostNodeGetParams, 10000, 0)                            \
  X(cuGraphHostNodeSetParams, 10000, 0)                            \
  X(cuGraphInstantiateWithParams, 12000, 12000)                    \
  X(cuGraphKernelNodeCopyAttributes, 11000, 0)                     \
  X(cuGraphKernelNodeGetAttribute, 11000, 0)                       \
  X(cuGraphKernelNodeSetAttribute, 11000, 0)                       \
  X(cuGraphKernelNodeGetParams, 12000, 0)                          \
  X(cuGraphKernelNodeSetParams, 12000, 0)                          \
  X(cuGraphMemcpyNodeGetParams, 10000, 0)                          \
  X(cuGraphMemAllocNodeGetParams, 11040, 0)                        \
  X(cuGraphMemFreeNodeGetParams, 11040, 0)                         \
  X(cuGraphMemcpyNodeSetParams, 10000, 0)                          \
  X(cuGraphMemsetNodeGetParams, 10000, 0)                          \
  X(cuGraphMemsetNodeSetParams, 10000, 0)                          \
  X(cuGraphNodeFindInClone, 10000, 0)                              \
  X(cuGraphNodeGetDependencies, 12030, 0)                          \
  X(cuGraphNodeGetDependentNodes, 12030, 0)                        \
  X(cuGraphNodeGetEnabled, 11060, 0)                               \
  X(cuGraphNodeGetType, 10000, 0)                                  \
  X(cuGraphNodeSetEnabled, 11060, 0)                               \
  X(cuGraphNodeSetParams, 12020, 0)                                \
  X(cuGraphReleaseUserObject, 11030, 0)                            \
  X(cuGraphRemoveDependencies, 12030, 0)                           \
  X(cuGraphRetainUserObject, 11030, 0)                             \
  X(cuStreamBeginCaptureToGraph, 12030, 12030)                     \
  X(cuStreamUpdateCaptureDependencies, 12030, 12030)               \
  X(cuUserObjectCreate, 11030, 0)                                  \
  X(cuUserObjectRelease, 11030, 0)                                 \
  X(cuUserObjectRetain, 11030, 0)                                  \
  X(cuArrayCreate, 3020, 0)                                        \
  X(cuArray3DCreate, 3020, 0)                                      \
  X(cuArray3DGetDescriptor, 3020, 0)                               \
  X(cuArrayDestroy, 2000, 0)                                       \
  X(cuMipmappedArrayCreate, 5000, 0)                               \
  X(cuMipmappedArrayGetLevel, 5000, 0)                             \
  X(cuMipmappedArrayDestroy, 5000, 0)                              \
  X(cuTexObjectCreate, 5000, 0)                                    \
  X(cuTexObjectDestroy, 5000, 0)                                   \
  X(cuTexObjectGetResourceDesc, 5000, 0)                           \
  X(cuTexObjectGetTextureDesc, 5000, 0)                            \
  X(cuTexObjectGetResourceViewDesc, 5000, 0)                       \
  X(cuSurfObjectCreate, 5000, 0)                                   \
  X(cuSurfObjectDestroy, 5000, 0)                                  \
  X(cuSurfObjectGetResourceDesc, 5000, 0)                          \
  X(cuProfilerStart, 4000, 0)                                      \
  X(cuProfilerStop, 4000, 0)

// cuda.h maps cuMemAlloc to cuMemAlloc_v2 and so on; the members get the mapped names, hence the
// newest types.
struct DriverApi {
#define SIMGPU_MEMBER(name, version, per_thread_version) decltype(&::name) name;
  SIMGPU_RUNTIME_DRIVER_API(SIMGPU_MEMBER)
#undef SIMGPU_MEMBER
};

// The two default-stream flavours of the driver, the same members in both.
enum Flavour { kLegacy = 0, kPerThread = 1 };
extern DriverApi g_driver[2];

// Valid once driver_ready() (runtime.h) succeeded. A function that the driver lacks returns
// CUDA_ERROR_NOT_SUPPORTED.
template <Flavour F = kLegacy>
inline const DriverApi& cu() {
  return g_driver[F];
}

// Fills g_driver. False if there is no driver library or it lacks cuGetProcAddress_v2.
bool load_driver_api();

}  // namespace simgpu::runtime
