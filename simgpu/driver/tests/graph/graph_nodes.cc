// Nodes of every kind: added, asked about, run, changed in the graph and in the executable.
#include "kernels.h"

static int calls = 0;
static void called(void* by) { calls += *static_cast<int*>(by); }

static void run(CUgraphExec exec) {
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
}

static uint32_t word(CUdeviceptr p) {
  uint32_t v;
  OK(cuMemcpyDtoH(&v, p, 4));
  return v;
}

int main() {
  CUcontext ctx = start();
  CUmodule module = load(kKernels);
  CUfunction fill = function(module, "fill");
  CUdeviceptr a, b;
  OK(cuMemAlloc(&a, 256));
  OK(cuMemAlloc(&b, 256));
  CUgraph graph;
  CUgraphExec exec;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph, 1));
  OK(cuGraphCreate(&graph, 0));

  uint32_t value = 3, n = 64;
  void* arguments[] = {&a, &value, &n};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = fill;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 64;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CUgraphNode fill_node, copy_node, set_node, host_node, empty, record, wait, batch, child_node;
  OK(cuGraphAddKernelNode(&fill_node, graph, nullptr, 0, &kernel));
  value = 99;  // the node has its own copy
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = b;
  copy.WidthInBytes = 256;
  copy.Height = copy.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy_node, graph, &fill_node, 1, &copy, ctx));
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = a;
  set.value = 0x11;
  set.elementSize = 1;
  set.width = 4;
  set.height = 1;
  OK(cuGraphAddMemsetNode(&set_node, graph, &copy_node, 1, &set, ctx));
  int one = 1, ten = 10;
  CUDA_HOST_NODE_PARAMS host = {called, &one};
  OK(cuGraphAddHostNode(&host_node, graph, &set_node, 1, &host));
  CUgraphNode two[] = {host_node, set_node};
  OK(cuGraphAddEmptyNode(&empty, graph, two, 2));
  CUgraphNode twice[] = {host_node, host_node};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&wait, graph, twice, 2));
  CUevent event;
  OK(cuEventCreate(&event, 0));
  OK(cuGraphAddEventRecordNode(&record, graph, &empty, 1, event));
  OK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, event));
  CUstreamBatchMemOpParams op = {};
  op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = b + 8;
  op.writeValue.value = 77;
  CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {};
  ops.ctx = ctx;
  ops.count = 1;
  ops.paramArray = &op;
  OK(cuGraphAddBatchMemOpNode(&batch, graph, &wait, 1, &ops));
  CUgraph child;
  OK(cuGraphCreate(&child, 0));
  CUgraphNode in_child;
  set.dst = b + 16;
  set.value = 5;
  OK(cuGraphAddMemsetNode(&in_child, child, nullptr, 0, &set, ctx));
  OK(cuGraphAddChildGraphNode(&child_node, graph, &batch, 1, child));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuGraphAddChildGraphNode(&child_node, graph, &in_child, 1, child));

  OK(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  CHECK(word(a) == 0x11111111 && word(a + 4) == 3 && word(b) == 3 && word(b + 8) == 77);
  CHECK(word(b + 16) == 0x05050505 && calls == 1);
  OK(cuEventQuery(event));

  // Asked.
  CUDA_KERNEL_NODE_PARAMS asked;
  OK(cuGraphKernelNodeGetParams(fill_node, &asked));
  CHECK(asked.func == fill && asked.blockDimX == 64 && asked.ctx == ctx &&
        *static_cast<uint32_t*>(asked.kernelParams[1]) == 3);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(copy_node, &asked));
  CUgraph embedded;
  OK(cuGraphChildGraphNodeGetGraph(child_node, &embedded));
  CHECK(embedded != child);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(embedded));
  CUgraphNode inner;
  OK(cuGraphNodeFindInClone(&inner, in_child, embedded));
  CUevent same;
  OK(cuGraphEventRecordNodeGetEvent(record, &same));
  CHECK(same == event);

  // Changed in the executable only, then in the graph only.
  value = 4;
  OK(cuGraphExecKernelNodeSetParams(exec, fill_node, &kernel));
  host.userData = &ten;
  OK(cuGraphExecHostNodeSetParams(exec, host_node, &host));
  set.value = 6;
  OK(cuGraphExecMemsetNodeSetParams(exec, inner, &set, ctx));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecHostNodeSetParams(exec, fill_node, &host));
  run(exec);
  CHECK(word(b) == 4 && calls == 11 && word(b + 16) == 0x06060606);
  OK(cuGraphKernelNodeGetParams(fill_node, &asked));
  CHECK(*static_cast<uint32_t*>(asked.kernelParams[1]) == 3);
  OK(cuGraphNodeSetEnabled(exec, fill_node, 0));
  unsigned on;
  OK(cuGraphNodeGetEnabled(exec, fill_node, &on));
  CHECK(on == 0);
  OK(cuMemsetD32(a, 8, 64));
  run(exec);
  CHECK(word(b) == 8);
  OK(cuGraphNodeSetEnabled(exec, fill_node, 1));
  value = 12;
  OK(cuGraphKernelNodeSetParams(fill_node, &kernel));
  run(exec);
  CHECK(word(b) == 4);
  CUgraphExecUpdateResultInfo info;
  OK(cuGraphExecUpdate(exec, graph, &info));
  run(exec);
  CHECK(word(b) == 12 && info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);

  // Another shape is refused, and says which node.
  CUgraph clone;
  OK(cuGraphClone(&clone, graph));
  CUgraphNode copied;
  OK(cuGraphNodeFindInClone(&copied, host_node, clone));
  OK(cuGraphDestroyNode(copied));
  EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, clone, &info));
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  OK(cuGraphExecUpdate(exec, graph, &info));

  // Edges.
  size_t count = 0;
  OK(cuGraphNodeGetDependencies(empty, nullptr, nullptr, &count));
  CHECK(count == 2);
  OK(cuGraphRemoveDependencies(graph, &set_node, &empty, nullptr, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &set_node, &empty, nullptr, 1));
  OK(cuGraphAddDependencies(graph, &child_node, &fill_node, nullptr, 1));
  CUgraphExec none;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&none, graph, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&none, graph, &params));
  CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE && params.hErrNode_out);

  // A conditional with a default value.
  CUgraph outer;
  OK(cuGraphCreate(&outer, 0));
  CUgraphConditionalHandle handle;
  OK(cuGraphConditionalHandleCreate(&handle, outer, ctx, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams condition = {};
  condition.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  condition.conditional.handle = handle;
  condition.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
  condition.conditional.size = 2;
  condition.conditional.ctx = ctx;
  CUgraphNode node;
  OK(cuGraphAddNode(&node, outer, nullptr, nullptr, 0, &condition));
  CUgraph* bodies = condition.conditional.phGraph_out;
  for (int i = 0; i < 2; ++i) {
    set.dst = b;
    set.value = 0x20 + static_cast<unsigned>(i);
    OK(cuGraphAddMemsetNode(&in_child, bodies[i], nullptr, 0, &set, ctx));
  }
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, outer));
  CUgraphExec chosen;
  OK(cuGraphInstantiate(&chosen, outer, 0));
  run(chosen);
  CHECK(word(b) == 0x21212121);

  // User objects live as long as graph and executables.
  CUuserObject user;
  OK(cuUserObjectCreate(&user, &ten, called, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuGraphRetainUserObject(child, user, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec keeper;
  OK(cuGraphInstantiate(&keeper, child, 0));
  int before = calls;
  OK(cuGraphDestroy(child));
  CHECK(calls == before);
  OK(cuGraphExecDestroy(keeper));
  CHECK(calls == before + 10);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(user, 1));

  // Dead handles.
  OK(cuGraphDestroy(graph));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(fill_node, &asked));
  run(exec);  // does not need its graph
  return ok();
}
