// An inference-like loop on graphs: captured ones with a fork and a join (their sources destroyed
// or kept), one that allocates its memory, one made of explicit nodes of every kind with a child,
// updated and changed as the loop goes on. Whatever a restore gets wrong in a graph changes the
// output.
#include <cuda.h>
#include <string.h>

#include <initializer_list>

#include "subject.h"

constexpr int kCount = 1024;
constexpr int kBatches = 3;

__global__ void layer(const uint32_t* in, const uint32_t* weights, uint32_t* out, uint32_t salt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = mix(in[i] + 5 * weights[(i * 7 + 3) % kCount] + salt);
}
__global__ void tick(uint32_t* counter, uint32_t by) { *counter += by; }

static int calls = 0;
static void called(void* by) { calls += *static_cast<int*>(by); }

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  cudaStream_t stream, side;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  cudaEvent_t fork, join;
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  uint32_t *weights, *x, *y, *z, *counter, *pinned;
  for (uint32_t** p : {&weights, &x, &y, &z, &counter}) CHECK(cudaMalloc(p, kCount * 4));
  CHECK(cudaMallocHost(&pinned, kCount * 4));
  std::vector<uint32_t> w(kCount), hx(kCount), hy(kCount), host(kCount);
  for (int i = 0; i < kCount; ++i) {
    w[i] = mix(i);
    hx[i] = mix(i + 9);
  }
  CHECK(cudaMemcpy(weights, w.data(), kCount * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(x, hx.data(), kCount * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(counter, 0, kCount * 4));

  auto capture = [&](uint32_t salt) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    layer<<<kCount / 128, 128, 0, stream>>>(x, weights, y, salt);
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    CHECK(cudaMemcpyAsync(z, y, kCount * 4, cudaMemcpyDeviceToDevice, side));
    CHECK(cudaEventRecord(join, side));
    tick<<<1, 1, 0, stream>>>(counter, salt);
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    layer<<<kCount / 128, 128, 0, stream>>>(z, weights, x, salt + 1);
    CHECK(cudaMemcpyAsync(pinned, x, kCount * 4, cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
  };
  cudaGraph_t sources[kBatches];
  cudaGraphExec_t execs[kBatches];
  uint32_t salts[kBatches];
  for (int b = 0; b < kBatches; ++b) {
    salts[b] = 10 + static_cast<uint32_t>(b);
    sources[b] = capture(salts[b]);
    CHECK(cudaGraphInstantiate(&execs[b], sources[b], 0));
    if (b == 0) CHECK(cudaGraphDestroy(sources[b]));
  }

  // Allocates, works, frees.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  uint32_t* scratch;
  CHECK(cudaMallocAsync(&scratch, kCount * 4, stream));
  layer<<<kCount / 128, 128, 0, stream>>>(x, weights, scratch, 77);
  CHECK(cudaMemcpyAsync(x, scratch, kCount * 4, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaFreeAsync(scratch, stream));
  cudaGraph_t memory_graph;
  cudaGraphExec_t memory_exec;
  CHECK(cudaStreamEndCapture(stream, &memory_graph));
  CHECK(cudaGraphInstantiate(&memory_exec, memory_graph, 0));

  // Explicit nodes: kernel -> set (in a child) -> host -> record -> wait -> write, copy.
  CUcontext ctx;
  CHECK(cuCtxGetCurrent(&ctx));
  cudaFunction_t tick_function;
  CHECK(cudaGetFuncBySymbol(&tick_function, reinterpret_cast<const void*>(tick)));
  CUgraph explicit_graph, child;
  CUgraphNode kernel_node, child_node, host_node, record, wait, write, copy_node, empty, set_node;
  CHECK(cuGraphCreate(&explicit_graph, 0));
  CHECK(cuGraphCreate(&child, 0));
  uint32_t by = 1;
  uint32_t* other_counter = counter + 1;
  void* arguments[] = {&other_counter, &by};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = reinterpret_cast<CUfunction>(tick_function);
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CHECK(cuGraphAddKernelNode(&kernel_node, explicit_graph, nullptr, 0, &kernel));
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = reinterpret_cast<CUdeviceptr>(counter + 2);
  set.value = 1;
  set.elementSize = 4;
  set.width = 1;
  set.height = 1;
  CHECK(cuGraphAddMemsetNode(&set_node, child, nullptr, 0, &set, ctx));
  CHECK(cuGraphAddChildGraphNode(&child_node, explicit_graph, &kernel_node, 1, child));
  int one = 1, two = 2;
  CUDA_HOST_NODE_PARAMS function = {called, &one};
  CHECK(cuGraphAddHostNode(&host_node, explicit_graph, &child_node, 1, &function));
  CHECK(cuGraphAddEventRecordNode(&record, explicit_graph, &host_node, 1, fork));
  CHECK(cuGraphAddEventWaitNode(&wait, explicit_graph, &record, 1, fork));
  CUstreamBatchMemOpParams operation = {};
  operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = reinterpret_cast<CUdeviceptr>(counter + 3);
  operation.writeValue.value = 55;
  CUDA_BATCH_MEM_OP_NODE_PARAMS operations = {ctx, 1, &operation, 0};
  CHECK(cuGraphAddBatchMemOpNode(&write, explicit_graph, &wait, 1, &operations));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(counter);
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(counter + 16);
  copy.WidthInBytes = 16;
  copy.Height = copy.Depth = 1;
  CHECK(cuGraphAddMemcpyNode(&copy_node, explicit_graph, &write, 1, &copy, ctx));
  CUgraphNode last[] = {copy_node, record};
  CHECK(cuGraphAddEmptyNode(&empty, explicit_graph, last, 2));
  CUgraphExec explicit_exec;
  CHECK(cuGraphInstantiate(&explicit_exec, explicit_graph, 0));
  CUgraph embedded;
  CHECK(cuGraphChildGraphNodeGetGraph(child_node, &embedded));
  CUgraphNode inner;
  CHECK(cuGraphNodeFindInClone(&inner, set_node, embedded));

  uint32_t expected[4] = {};
  int expected_calls = 0, host_adds = 1;
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    int b = step % kBatches;
    if (step % 6 == 5) {  // new parameters for a graph whose source is alive
      salts[1] += 100;
      cudaGraph_t fresh = capture(salts[1]);
      CUgraphExecUpdateResultInfo info;
      CHECK(cuGraphExecUpdate(execs[1], fresh, &info));
      CHECK(cudaGraphDestroy(fresh));
    }
    CHECK(cudaGraphLaunch(execs[b], stream));
    CHECK(cudaGraphLaunch(memory_exec, stream));
    if (step % 5 == 0) {  // in the executable only
      by += 2;
      CHECK(cuGraphExecKernelNodeSetParams(explicit_exec, kernel_node, &kernel));
      set.value = static_cast<unsigned>(step);
      CHECK(cuGraphExecMemsetNodeSetParams(explicit_exec, inner, &set, ctx));
    }
    if (step % 8 == 0) {
      function.userData = &two;
      CHECK(cuGraphExecHostNodeSetParams(explicit_exec, host_node, &function));
      host_adds = 2;
    }
    if (step % 10 == 0) CHECK(cuGraphNodeSetEnabled(explicit_exec, copy_node, step / 10 % 2));
    unsigned enabled;
    CHECK(cuGraphNodeGetEnabled(explicit_exec, copy_node, &enabled));
    EXPECT(enabled == (step < 10 ? 1u : step / 10 % 2));
    CHECK(cudaGraphLaunch(explicit_exec, stream));
    CHECK(cudaEventSynchronize(fork));
    CHECK(cudaStreamSynchronize(stream));
    expected_calls += host_adds;
    EXPECT(calls == expected_calls);

    for (int i = 0; i < kCount; ++i) hy[i] = mix(hx[i] + 5 * w[(i * 7 + 3) % kCount] + salts[b]);
    for (int i = 0; i < kCount; ++i)
      hx[i] = mix(hy[i] + 5 * w[(i * 7 + 3) % kCount] + salts[b] + 1);
    EXPECT(memcmp(pinned, hx.data(), kCount * 4) == 0);
    for (int i = 0; i < kCount; ++i) hx[i] = mix(hx[i] + 5 * w[(i * 7 + 3) % kCount] + 77);
    expected[0] += salts[b];
    expected[1] += by;
    CHECK(cudaMemcpy(host.data(), counter, kCount * 4, cudaMemcpyDeviceToHost));
    EXPECT(host[0] == expected[0] && host[1] == expected[1] && host[3] == 55);
    EXPECT(host[2] == set.value);
    // The graph still has the nodes and edges it was given.
    CUgraphNode nodes[16];
    size_t count = 16, edges = 0;
    CHECK(cuGraphGetNodes(explicit_graph, nodes, &count));
    EXPECT(count == 8 && nodes[0] == kernel_node && nodes[7] == empty);
    CHECK(cuGraphGetEdges(explicit_graph, nullptr, nullptr, nullptr, &edges));
    EXPECT(edges == 8);
    CUDA_KERNEL_NODE_PARAMS asked;
    CHECK(cuGraphKernelNodeGetParams(kernel_node, &asked));
    EXPECT(*static_cast<uint32_t*>(asked.kernelParams[1]) == 1 && asked.ctx == ctx);
    digest.add(host);
    digest.add(hx);
    steps.report(step, digest);
  }
  for (int b = 0; b < kBatches; ++b) {
    CHECK(cudaGraphExecDestroy(execs[b]));
    if (b != 0) CHECK(cudaGraphDestroy(sources[b]));
  }
  CHECK(cuGraphExecDestroy(explicit_exec));
  CHECK(cuGraphDestroy(explicit_graph));
  CHECK(cuGraphDestroy(child));
  CHECK(cudaGraphExecDestroy(memory_exec));
  CHECK(cudaGraphDestroy(memory_graph));
  return steps.finish(digest);
}
