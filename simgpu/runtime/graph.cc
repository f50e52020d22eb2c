// Graphs: nodes, structure, executables. Most calls hand on to the driver; kernels are found by
// their host stubs, and copies are described as the driver wants them.
#include <string.h>

#include "runtime.h"

using namespace simgpu::runtime;

static_assert(sizeof(cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS));
static_assert(sizeof(cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS));
static_assert(sizeof(cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS));
static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
static_assert(sizeof(cudaGraphNodeParams) == sizeof(CUgraphNodeParams));

namespace {

CUcontext current_context() {
  CUcontext context = nullptr;
  cu().cuCtxGetCurrent(&context);
  return context;
}

// cudaKernelNodeParams or its second version; the stub becomes the driver's kernel.
template <class From, class To>
cudaError_t describe_kernel(const From* p, To* out) {
  if (!p) return cudaErrorInvalidValue;
  CUkernel kernel;
  if (cudaError_t error = find_kernel(p->func, &kernel); error != cudaSuccess) return error;
  *out = {};
  out->kern = kernel;
  out->gridDimX = p->gridDim.x;
  out->gridDimY = p->gridDim.y;
  out->gridDimZ = p->gridDim.z;
  out->blockDimX = p->blockDim.x;
  out->blockDimY = p->blockDim.y;
  out->blockDimZ = p->blockDim.z;
  out->sharedMemBytes = p->sharedMemBytes;
  out->kernelParams = p->kernelParams;
  out->extra = p->extra;
  out->ctx = current_context();
  return cudaSuccess;
}

// A copy node's parameters as the runtime tells them: the other way of describe_3d.
cudaError_t tell_copy(const CUDA_MEMCPY3D& c, cudaMemcpy3DParms* out) {
  size_t from_texel = 1, to_texel = 1;
  *out = {};
  bool from_host = c.srcMemoryType == CU_MEMORYTYPE_HOST;
  bool to_host = c.dstMemoryType == CU_MEMORYTYPE_HOST;
  if (c.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    out->srcArray = reinterpret_cast<cudaArray_t>(c.srcArray);
    CUDART_TRY(texel_bytes(out->srcArray, &from_texel));
  } else {
    void* from = from_host ? const_cast<void*>(c.srcHost) : reinterpret_cast<void*>(c.srcDevice);
    out->srcPtr = {from, c.srcPitch, c.WidthInBytes, c.srcHeight};
  }
  if (c.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    out->dstArray = reinterpret_cast<cudaArray_t>(c.dstArray);
    CUDART_TRY(texel_bytes(out->dstArray, &to_texel));
  } else {
    void* to = to_host ? c.dstHost : reinterpret_cast<void*>(c.dstDevice);
    out->dstPtr = {to, c.dstPitch, c.WidthInBytes, c.dstHeight};
  }
  out->srcPos = {c.srcXInBytes / from_texel, c.srcY, c.srcZ};
  out->dstPos = {c.dstXInBytes / to_texel, c.dstY, c.dstZ};
  size_t texel = out->srcArray ? from_texel : to_texel;
  out->extent = {c.WidthInBytes / texel, c.Height, c.Depth};
  if (c.srcMemoryType == CU_MEMORYTYPE_UNIFIED || c.dstMemoryType == CU_MEMORYTYPE_UNIFIED)
    out->kind = cudaMemcpyDefault;
  else if (from_host)
    out->kind = to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
  else
    out->kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
  return cudaSuccess;
}

cudaError_t describe_line(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                          CUDA_MEMCPY3D* out) {
  cudaMemcpy3DParms p = {};
  p.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
  p.dstPtr = {to, bytes, bytes, 1};
  p.extent = {bytes, 1, 1};
  p.kind = kind;
  return describe_3d(&p, out);
}

cudaError_t symbol_address(const void* symbol, size_t offset, size_t count, void** out) {
  CUdeviceptr address;
  size_t bytes;
  if (cudaError_t error = find_symbol(symbol, &address, &bytes); error != cudaSuccess) return error;
  if (offset > bytes || count > bytes - offset) return cudaErrorInvalidValue;
  *out = reinterpret_cast<void*>(address + offset);
  return cudaSuccess;
}

// What cudaGraphAddNode and its like are given, for the driver.
cudaError_t describe_node(const cudaGraphNodeParams* p, CUgraphNodeParams* out) {
  if (!p) return cudaErrorInvalidValue;
  memcpy(out, p, sizeof *out);
  switch (p->type) {
    case cudaGraphNodeTypeKernel:
      return describe_kernel(&p->kernel, &out->kernel);
    case cudaGraphNodeTypeMemcpy:
      out->memcpy = {};
      out->memcpy.copyCtx = current_context();
      return describe_3d(&p->memcpy.copyParams, &out->memcpy.copyParams);
    case cudaGraphNodeTypeMemset:
      out->memset.ctx = current_context();
      return cudaSuccess;
    default:
      return cudaSuccess;
  }
}

}  // namespace

CUDART_API(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), (clone, graph)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphClone(clone, graph));
}
CUDART_API(cudaGraphNodeFindInClone,
           (cudaGraphNode_t * node, cudaGraphNode_t original, cudaGraph_t clone),
           (node, original, clone)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphNodeFindInClone(node, original, clone));
}
CUDART_API(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count),
           (graph, nodes, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphGetNodes(graph, nodes, count));
}
CUDART_API(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count),
           (graph, nodes, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphGetRootNodes(graph, nodes, count));
}
CUDART_API(cudaGraphDestroyNode, (cudaGraphNode_t node), (node)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphDestroyNode(node));
}
CUDART_API(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char* path, unsigned flags),
           (graph, path, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphDebugDotPrint(graph, path, flags));
}
CUDART_API(cudaGraphAddEmptyNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count),
           (node, graph, before, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddEmptyNode(node, graph, before, count));
}
CUDART_API(cudaGraphAddChildGraphNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            cudaGraph_t child),
           (node, graph, before, count, child)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddChildGraphNode(node, graph, before, count, child));
}
CUDART_API(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t* graph),
           (node, graph)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphChildGraphNodeGetGraph(node, graph));
}
CUDART_API(cudaGraphAddEventRecordNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            cudaEvent_t event),
           (node, graph, before, count, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddEventRecordNode(node, graph, before, count, event));
}
CUDART_API(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t* event),
           (node, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphEventRecordNodeGetEvent(node, event));
}
CUDART_API(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
           (node, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphEventRecordNodeSetEvent(node, event));
}
CUDART_API(cudaGraphAddEventWaitNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            cudaEvent_t event),
           (node, graph, before, count, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddEventWaitNode(node, graph, before, count, event));
}
CUDART_API(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t* event),
           (node, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphEventWaitNodeGetEvent(node, event));
}
CUDART_API(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
           (node, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphEventWaitNodeSetEvent(node, event));
}
CUDART_API(cudaGraphExecChildGraphNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child), (exec, node, child)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecChildGraphNodeSetParams(exec, node, child));
}
CUDART_API(cudaGraphExecEventRecordNodeSetEvent,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event), (exec, node, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecEventRecordNodeSetEvent(exec, node, event));
}
CUDART_API(cudaGraphExecEventWaitNodeSetEvent,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event), (exec, node, event)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecEventWaitNodeSetEvent(exec, node, event));
}
CUDART_API(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled),
           (exec, node, enabled)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphNodeSetEnabled(exec, node, enabled));
}
CUDART_API(cudaGraphNodeGetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned* enabled),
           (exec, node, enabled)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphNodeGetEnabled(exec, node, enabled));
}
CUDART_API(cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t to, cudaGraphNode_t from),
           (to, from)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphKernelNodeCopyAttributes(to, from));
}
CUDART_API(cudaGraphRetainUserObject,
           (cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags),
           (graph, object, count, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphRetainUserObject(graph, object, count, flags));
}
CUDART_API(cudaGraphReleaseUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned count),
           (graph, object, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphReleaseUserObject(graph, object, count));
}
CUDART_API(cudaUserObjectCreate,
           (cudaUserObject_t * object, void* pointer, cudaHostFn_t destroy, unsigned count,
            unsigned flags),
           (object, pointer, destroy, count, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuUserObjectCreate(object, pointer, destroy, count, flags));
}
CUDART_API(cudaUserObjectRetain, (cudaUserObject_t object, unsigned count), (object, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuUserObjectRetain(object, count));
}
CUDART_API(cudaUserObjectRelease, (cudaUserObject_t object, unsigned count), (object, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuUserObjectRelease(object, count));
}

// The same bytes under two names.
CUDART_API(cudaGraphGetEdges,
           (cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
            size_t* count),
           (graph, from, to, data, count)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphGetEdges(graph, from, to, reinterpret_cast<CUgraphEdgeData*>(data), count));
}
CUDART_API(cudaGraphNodeGetDependencies,
           (cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data, size_t* count),
           (node, nodes, data, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphNodeGetDependencies(
      node, nodes, reinterpret_cast<CUgraphEdgeData*>(data), count));
}
CUDART_API(cudaGraphNodeGetDependentNodes,
           (cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data, size_t* count),
           (node, nodes, data, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphNodeGetDependentNodes(
      node, nodes, reinterpret_cast<CUgraphEdgeData*>(data), count));
}
CUDART_API(cudaGraphAddDependencies,
           (cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
            const cudaGraphEdgeData* data, size_t count),
           (graph, from, to, data, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddDependencies(
      graph, from, to, reinterpret_cast<const CUgraphEdgeData*>(data), count));
}
CUDART_API(cudaGraphRemoveDependencies,
           (cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
            const cudaGraphEdgeData* data, size_t count),
           (graph, from, to, data, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphRemoveDependencies(
      graph, from, to, reinterpret_cast<const CUgraphEdgeData*>(data), count));
}
CUDART_API(cudaGraphNodeGetType, (cudaGraphNode_t node, cudaGraphNodeType* type), (node, type)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type)));
}
CUDART_API(cudaGraphExecUpdate,
           (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info),
           (exec, graph, info)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphExecUpdate(exec, graph, reinterpret_cast<CUgraphExecUpdateResultInfo*>(info)));
}
CUDART_API(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long* flags),
           (exec, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecGetFlags(exec, reinterpret_cast<cuuint64_t*>(flags)));
}
CUDART_API(cudaGraphKernelNodeGetAttribute,
           (cudaGraphNode_t node, cudaLaunchAttributeID id, cudaLaunchAttributeValue* value),
           (node, id, value)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphKernelNodeGetAttribute(node, static_cast<CUlaunchAttributeID>(id),
                                         reinterpret_cast<CUlaunchAttributeValue*>(value)));
}
CUDART_API(cudaGraphKernelNodeSetAttribute,
           (cudaGraphNode_t node, cudaLaunchAttributeID id, const cudaLaunchAttributeValue* value),
           (node, id, value)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphKernelNodeSetAttribute(node, static_cast<CUlaunchAttributeID>(id),
                                         reinterpret_cast<const CUlaunchAttributeValue*>(value)));
}
CUDART_API(cudaGraphAddHostNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            const cudaHostNodeParams* params),
           (node, graph, before, count, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddHostNode(
      node, graph, before, count, reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphHostNodeGetParams, (cudaGraphNode_t node, cudaHostNodeParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphHostNodeGetParams(node, reinterpret_cast<CUDA_HOST_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphHostNodeSetParams, (cudaGraphNode_t node, const cudaHostNodeParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphHostNodeSetParams(node, reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphExecHostNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, const cudaHostNodeParams* params),
           (exec, node, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecHostNodeSetParams(
      exec, node, reinterpret_cast<const CUDA_HOST_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphMemsetNodeGetParams, (cudaGraphNode_t node, cudaMemsetParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphMemsetNodeGetParams(node, reinterpret_cast<CUDA_MEMSET_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphMemsetNodeSetParams, (cudaGraphNode_t node, const cudaMemsetParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphMemsetNodeSetParams(
      node, reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphAddMemAllocNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            cudaMemAllocNodeParams* params),
           (node, graph, before, count, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddMemAllocNode(
      node, graph, before, count, reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphMemAllocNodeGetParams, (cudaGraphNode_t node, cudaMemAllocNodeParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphMemAllocNodeGetParams(
      node, reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(params)));
}
CUDART_API(cudaGraphAddMemFreeNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            void* address),
           (node, graph, before, count, address)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddMemFreeNode(node, graph, before, count,
                                                reinterpret_cast<CUdeviceptr>(address)));
}
CUDART_API(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void* address), (node, address)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphMemFreeNodeGetParams(node, static_cast<CUdeviceptr*>(address)));
}

// Kernels.

CUDART_API(cudaGraphAddKernelNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            const cudaKernelNodeParams* params),
           (node, graph, before, count, params)) {
  CUDART_TRY(ready());
  CUDA_KERNEL_NODE_PARAMS p;
  CUDART_TRY(describe_kernel(params, &p));
  return from_driver(cu().cuGraphAddKernelNode(node, graph, before, count, &p));
}
CUDART_API(cudaGraphKernelNodeGetParams, (cudaGraphNode_t node, cudaKernelNodeParams* params),
           (node, params)) {
  if (!params) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDA_KERNEL_NODE_PARAMS p;
  CUDART_TRY(from_driver(cu().cuGraphKernelNodeGetParams(node, &p)));
  *params = {};
  CUDART_TRY(find_stub(p.func, &params->func));
  params->gridDim = {p.gridDimX, p.gridDimY, p.gridDimZ};
  params->blockDim = {p.blockDimX, p.blockDimY, p.blockDimZ};
  params->sharedMemBytes = p.sharedMemBytes;
  params->kernelParams = p.kernelParams;
  params->extra = p.extra;
  return cudaSuccess;
}
CUDART_API(cudaGraphKernelNodeSetParams, (cudaGraphNode_t node, const cudaKernelNodeParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  CUDA_KERNEL_NODE_PARAMS p;
  CUDART_TRY(describe_kernel(params, &p));
  return from_driver(cu().cuGraphKernelNodeSetParams(node, &p));
}
CUDART_API(cudaGraphExecKernelNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams* params),
           (exec, node, params)) {
  CUDART_TRY(ready());
  CUDA_KERNEL_NODE_PARAMS p;
  CUDART_TRY(describe_kernel(params, &p));
  return from_driver(cu().cuGraphExecKernelNodeSetParams(exec, node, &p));
}

// Copies and sets, in the current context.

CUDART_API(cudaGraphAddMemcpyNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            const cudaMemcpy3DParms* params),
           (node, graph, before, count, params)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(describe_3d(params, &p));
  return from_driver(cu().cuGraphAddMemcpyNode(node, graph, before, count, &p, current_context()));
}
CUDART_API(cudaGraphMemcpyNodeGetParams, (cudaGraphNode_t node, cudaMemcpy3DParms* params),
           (node, params)) {
  if (!params) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(from_driver(cu().cuGraphMemcpyNodeGetParams(node, &p)));
  return tell_copy(p, params);
}
CUDART_API(cudaGraphMemcpyNodeSetParams, (cudaGraphNode_t node, const cudaMemcpy3DParms* params),
           (node, params)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(describe_3d(params, &p));
  return from_driver(cu().cuGraphMemcpyNodeSetParams(node, &p));
}
CUDART_API(cudaGraphExecMemcpyNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, const cudaMemcpy3DParms* params),
           (exec, node, params)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(describe_3d(params, &p));
  return from_driver(cu().cuGraphExecMemcpyNodeSetParams(exec, node, &p, current_context()));
}
CUDART_API(cudaGraphAddMemcpyNode1D,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
           (node, graph, before, count, to, from, bytes, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphAddMemcpyNode(node, graph, before, count, &p, current_context()));
}
CUDART_API(cudaGraphMemcpyNodeSetParams1D,
           (cudaGraphNode_t node, void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
           (node, to, from, bytes, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphMemcpyNodeSetParams(node, &p));
}
CUDART_API(cudaGraphExecMemcpyNodeSetParams1D,
           (cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from, size_t bytes,
            cudaMemcpyKind kind),
           (exec, node, to, from, bytes, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D p;
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphExecMemcpyNodeSetParams(exec, node, &p, current_context()));
}
CUDART_API(cudaGraphAddMemcpyNodeToSymbol,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind),
           (node, graph, before, count, symbol, from, bytes, offset, kind)) {
  CUDART_TRY(ready());
  void* to;
  CUDA_MEMCPY3D p;
  CUDART_TRY(symbol_address(symbol, offset, bytes, &to));
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphAddMemcpyNode(node, graph, before, count, &p, current_context()));
}
CUDART_API(cudaGraphAddMemcpyNodeFromSymbol,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind),
           (node, graph, before, count, to, symbol, bytes, offset, kind)) {
  CUDART_TRY(ready());
  void* from;
  CUDA_MEMCPY3D p;
  CUDART_TRY(symbol_address(symbol, offset, bytes, &from));
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphAddMemcpyNode(node, graph, before, count, &p, current_context()));
}
CUDART_API(cudaGraphMemcpyNodeSetParamsToSymbol,
           (cudaGraphNode_t node, const void* symbol, const void* from, size_t bytes, size_t offset,
            cudaMemcpyKind kind),
           (node, symbol, from, bytes, offset, kind)) {
  CUDART_TRY(ready());
  void* to;
  CUDA_MEMCPY3D p;
  CUDART_TRY(symbol_address(symbol, offset, bytes, &to));
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphMemcpyNodeSetParams(node, &p));
}
CUDART_API(cudaGraphMemcpyNodeSetParamsFromSymbol,
           (cudaGraphNode_t node, void* to, const void* symbol, size_t bytes, size_t offset,
            cudaMemcpyKind kind),
           (node, to, symbol, bytes, offset, kind)) {
  CUDART_TRY(ready());
  void* from;
  CUDA_MEMCPY3D p;
  CUDART_TRY(symbol_address(symbol, offset, bytes, &from));
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphMemcpyNodeSetParams(node, &p));
}
CUDART_API(cudaGraphExecMemcpyNodeSetParamsToSymbol,
           (cudaGraphExec_t exec, cudaGraphNode_t node, const void* symbol, const void* from,
            size_t bytes, size_t offset, cudaMemcpyKind kind),
           (exec, node, symbol, from, bytes, offset, kind)) {
  CUDART_TRY(ready());
  void* to;
  CUDA_MEMCPY3D p;
  CUDART_TRY(symbol_address(symbol, offset, bytes, &to));
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphExecMemcpyNodeSetParams(exec, node, &p, current_context()));
}
CUDART_API(cudaGraphExecMemcpyNodeSetParamsFromSymbol,
           (cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* symbol, size_t bytes,
            size_t offset, cudaMemcpyKind kind),
           (exec, node, to, symbol, bytes, offset, kind)) {
  CUDART_TRY(ready());
  void* from;
  CUDA_MEMCPY3D p;
  CUDART_TRY(symbol_address(symbol, offset, bytes, &from));
  CUDART_TRY(describe_line(to, from, bytes, kind, &p));
  return from_driver(cu().cuGraphExecMemcpyNodeSetParams(exec, node, &p, current_context()));
}
CUDART_API(cudaGraphAddMemsetNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
            const cudaMemsetParams* params),
           (node, graph, before, count, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphAddMemsetNode(
      node, graph, before, count, reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(params),
      current_context()));
}
CUDART_API(cudaGraphExecMemsetNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, const cudaMemsetParams* params),
           (exec, node, params)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuGraphExecMemsetNodeSetParams(
      exec, node, reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(params), current_context()));
}

// Nodes of any kind.

CUDART_API(cudaGraphAddNode,
           (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* before,
            const cudaGraphEdgeData* data, size_t count, cudaGraphNodeParams* params),
           (node, graph, before, data, count, params)) {
  CUDART_TRY(ready());
  CUgraphNodeParams p;
  CUDART_TRY(describe_node(params, &p));
  CUDART_TRY(from_driver(cu().cuGraphAddNode(
      node, graph, before, reinterpret_cast<const CUgraphEdgeData*>(data), count, &p)));
  if (p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    params->alloc.dptr = reinterpret_cast<void*>(p.alloc.dptr);
  if (p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    params->conditional.phGraph_out = p.conditional.phGraph_out;
  return cudaSuccess;
}
CUDART_API(cudaGraphNodeSetParams, (cudaGraphNode_t node, cudaGraphNodeParams* params),
           (node, params)) {
  CUDART_TRY(ready());
  CUgraphNodeParams p;
  CUDART_TRY(describe_node(params, &p));
  return from_driver(cu().cuGraphNodeSetParams(node, &p));
}
CUDART_API(cudaGraphExecNodeSetParams,
           (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeParams* params),
           (exec, node, params)) {
  CUDART_TRY(ready());
  CUgraphNodeParams p;
  CUDART_TRY(describe_node(params, &p));
  return from_driver(cu().cuGraphExecNodeSetParams(exec, node, &p));
}
CUDART_API(cudaGraphConditionalHandleCreate,
           (cudaGraphConditionalHandle * handle, cudaGraph_t graph, unsigned standard,
            unsigned flags),
           (handle, graph, standard, flags)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuGraphConditionalHandleCreate(reinterpret_cast<CUgraphConditionalHandle*>(handle),
                                          graph, current_context(), standard, flags));
}

CUDART_API_PTSZ(cudaGraphInstantiateWithParams,
                (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams* params),
                (exec, graph, params)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuGraphInstantiateWithParams(
      exec, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(params)));
}

CUDART_API_PTSZ(cudaStreamBeginCaptureToGraph,
                (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* before,
                 const cudaGraphEdgeData* data, size_t count, cudaStreamCaptureMode mode),
                (stream, graph, before, data, count, mode)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamBeginCaptureToGraph(
      stream, graph, before, reinterpret_cast<const CUgraphEdgeData*>(data), count,
      static_cast<CUstreamCaptureMode>(mode)));
}
CUDART_API_PTSZ(cudaStreamUpdateCaptureDependencies,
                (cudaStream_t stream, cudaGraphNode_t* nodes, const cudaGraphEdgeData* data,
                 size_t count, unsigned flags),
                (stream, nodes, data, count, flags)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuStreamUpdateCaptureDependencies(
      stream, nodes, reinterpret_cast<const CUgraphEdgeData*>(data), count, flags));
}

// Memory of graphs. The attributes have the driver's numbers.

CUDART_API(cudaDeviceGraphMemTrim, (int device), (device)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(device)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGraphMemTrim(device_of(device)));
}
CUDART_API(cudaDeviceGetGraphMemAttribute,
           (int device, cudaGraphMemAttributeType attribute, void* value),
           (device, attribute, value)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(device)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceGetGraphMemAttribute(
      device_of(device), static_cast<CUgraphMem_attribute>(attribute), value));
}
CUDART_API(cudaDeviceSetGraphMemAttribute,
           (int device, cudaGraphMemAttributeType attribute, void* value),
           (device, attribute, value)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(device)) return cudaErrorInvalidDevice;
  return from_driver(cu().cuDeviceSetGraphMemAttribute(
      device_of(device), static_cast<CUgraphMem_attribute>(attribute), value));
}
