// Streams, events, host functions, capture and the few graph calls that only hand a graph on.
#include "runtime.h"

using namespace simgpu::runtime;

CUDART_API(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), (stream, flags)) {
  if (!stream) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu().cuStreamCreate(stream, flags));
}

CUDART_API(cudaStreamCreate, (cudaStream_t * stream), (stream)) {
  return cudaStreamCreateWithFlags_body(stream, cudaStreamDefault);
}

CUDART_API(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
           (stream, flags, priority)) {
  if (!stream) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu().cuStreamCreateWithPriority(stream, flags, priority));
}

CUDART_API(cudaStreamDestroy, (cudaStream_t stream), (stream)) {
  CUDART_TRY(ready());
  if (!stream) return cudaErrorInvalidResourceHandle;
  return from_driver(cu().cuStreamDestroy(stream));
}

CUDART_API_PTSZ(cudaStreamGetPriority, (cudaStream_t stream, int* priority), (stream, priority)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamGetPriority(stream, priority));
}

CUDART_API_PTSZ(cudaStreamGetFlags, (cudaStream_t stream, unsigned* flags), (stream, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamGetFlags(stream, flags));
}

CUDART_API_PTSZ(cudaStreamGetId, (cudaStream_t stream, unsigned long long* id), (stream, id)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamGetId(stream, id));
}

CUDART_API_PTSZ(cudaStreamGetDevice, (cudaStream_t stream, int* ordinal), (stream, ordinal)) {
  if (!ordinal) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUdevice device;
  CUDART_TRY(from_driver(cu<F>().cuStreamGetDevice(stream, &device)));
  for (int i = 0; i < device_count(); ++i) {
    if (device_of(i) != device) continue;
    *ordinal = i;
    return cudaSuccess;
  }
  return cudaErrorInvalidDevice;
}

CUDART_API_PTSZ(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
                (stream, event, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamWaitEvent(stream, event, flags));
}

CUDART_API_PTSZ(cudaStreamSynchronize, (cudaStream_t stream), (stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamSynchronize(stream));
}

CUDART_API_PTSZ(cudaStreamQuery, (cudaStream_t stream), (stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamQuery(stream));
}

CUDART_API_PTSZ(cudaStreamAttachMemAsync,
                (cudaStream_t stream, void* address, size_t bytes, unsigned flags),
                (stream, address, bytes, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamAttachMemAsync(stream, device_ptr(address), bytes, flags));
}

CUDART_API_PTSZ(cudaStreamCopyAttributes, (cudaStream_t to, cudaStream_t from), (to, from)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamCopyAttributes(to, from));
}

// cudaLaunchAttributeValue and CUlaunchAttributeValue are the same bytes under two names.
static_assert(sizeof(cudaLaunchAttributeValue) == sizeof(CUstreamAttrValue));

CUDART_API_PTSZ(cudaStreamGetAttribute,
                (cudaStream_t stream, cudaLaunchAttributeID attribute,
                 cudaLaunchAttributeValue* value),
                (stream, attribute, value)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                                  reinterpret_cast<CUstreamAttrValue*>(value)));
}

CUDART_API_PTSZ(cudaStreamSetAttribute,
                (cudaStream_t stream, cudaLaunchAttributeID attribute,
                 const cudaLaunchAttributeValue* value),
                (stream, attribute, value)) {
  CUDART_TRY(ready());
  return from_driver(
      cu<F>().cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                   reinterpret_cast<const CUstreamAttrValue*>(value)));
}

// -------------------------------------------------------------------------------------- host
// functions

// The driver calls back with a CUresult where the application expects a cudaError_t: the same
// number.
CUDART_API_PTSZ(cudaStreamAddCallback,
                (cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags),
                (stream, callback, data, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamAddCallback(
      stream, reinterpret_cast<CUstreamCallback>(callback), data, flags));
}

CUDART_API_PTSZ(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void* data),
                (stream, function, data)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuLaunchHostFunc(stream, function, data));
}

// ----------------------------------------------------------------------------------------------
// events

CUDART_API(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), (event, flags)) {
  if (!event) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu().cuEventCreate(event, flags));
}

CUDART_API(cudaEventCreate, (cudaEvent_t * event), (event)) {
  return cudaEventCreateWithFlags_body(event, cudaEventDefault);
}

CUDART_API(cudaEventDestroy, (cudaEvent_t event), (event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuEventDestroy(event));
}

CUDART_API_PTSZ(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuEventRecord(event, stream));
}

CUDART_API_PTSZ(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
                (event, stream, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuEventRecordWithFlags(event, stream, flags));
}

CUDART_API(cudaEventQuery, (cudaEvent_t event), (event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuEventQuery(event));
}

CUDART_API(cudaEventSynchronize, (cudaEvent_t event), (event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuEventSynchronize(event));
}

CUDART_API(cudaEventElapsedTime, (float* milliseconds, cudaEvent_t start, cudaEvent_t end),
           (milliseconds, start, end)) {
  if (!milliseconds) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  return from_driver(cu().cuEventElapsedTime(milliseconds, start, end));
}

// ---------------------------------------------------------------------------------- capture and
// graphs

CUDART_API_PTSZ(cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode),
                (stream, mode)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
}

CUDART_API_PTSZ(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph), (stream, graph)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamEndCapture(stream, graph));
}

CUDART_API_PTSZ(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status),
                (stream, status)) {
  CUDART_TRY(ready());
  return from_driver(
      cu<F>().cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
}

CUDART_API_PTSZ(cudaStreamGetCaptureInfo,
                (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                 cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                 const cudaGraphEdgeData** edges, size_t* count),
                (stream, status, id, graph, dependencies, edges, count)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamGetCaptureInfo(
      stream, reinterpret_cast<CUstreamCaptureStatus*>(status), reinterpret_cast<cuuint64_t*>(id),
      graph, dependencies, reinterpret_cast<const CUgraphEdgeData**>(edges), count));
}

CUDART_API(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode), (mode)) {
  CUDART_TRY(driver_ready());
  return from_driver(
      cu().cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}

CUDART_API(cudaGraphCreate, (cudaGraph_t * graph, unsigned flags), (graph, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphCreate(graph, flags));
}

CUDART_API(cudaGraphInstantiateWithFlags,
           (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
           (exec, graph, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphInstantiateWithFlags(exec, graph, flags));
}

CUDART_API(cudaGraphInstantiate,
           (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
           (exec, graph, flags)) {
  return cudaGraphInstantiateWithFlags_body(exec, graph, flags);
}

CUDART_API_PTSZ(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuGraphUpload(exec, stream));
}

CUDART_API_PTSZ(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuGraphLaunch(exec, stream));
}

CUDART_API(cudaGraphExecDestroy, (cudaGraphExec_t exec), (exec)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecDestroy(exec));
}

CUDART_API(cudaGraphDestroy, (cudaGraph_t graph), (graph)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphDestroy(graph));
}
