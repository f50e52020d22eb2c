// Captures become graphs with the right nodes and edges, and running them does what was captured.
#include <initializer_list>

#include "kernels.h"

static size_t node_count(CUgraph g) {
  size_t n = 0;
  OK(cuGraphGetNodes(g, nullptr, &n));
  return n;
}
static size_t edge_count(CUgraph g) {
  size_t n = 0;
  OK(cuGraphGetEdges_v2(g, nullptr, nullptr, nullptr, &n));
  return n;
}

int main() {
  start();
  CUfunction fill = function(load(kKernels), "fill");
  CUstream s, other;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUevent fork, join;
  OK(cuEventCreate(&fork, 0));
  OK(cuEventCreate(&join, 0));
  CUdeviceptr a, b;
  OK(cuMemAlloc(&a, 256));
  OK(cuMemAlloc(&b, 256));
  uint32_t host[64] = {}, more[64] = {};
  CUgraph graph;
  CUgraphExec exec;

  // s: fill a; other (after it): copy a to b; s: set a; join.
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(launch1(fill, 1, 64, s, a, 7u, 64u));
  OK(cuEventRecord(fork, s));
  OK(cuStreamWaitEvent(other, fork, 0));
  OK(cuMemcpyDtoDAsync(b, a, 256, other));
  OK(cuEventRecord(join, other));
  CUstreamCaptureStatus status;
  cuuint64_t id;
  CUgraph inside;
  const CUgraphNode* points;
  const CUgraphEdgeData* data;
  size_t count;
  OK(cuStreamGetCaptureInfo(s, &status, &id, &inside, &points, &data, &count));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1 && node_count(inside) == 2);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inside));
  OK(cuStreamWaitEvent(s, join, 0));
  OK(cuMemsetD32Async(a, 1, 64, s));
  OK(cuMemcpyDtoHAsync(more, b, 256, s));
  OK(cuStreamEndCapture(s, &graph));
  CHECK(graph == inside);
  CHECK(node_count(graph) == 4 && edge_count(graph) == 4);
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, nullptr, &count));
  for (int i = 0; i < 3; ++i) {
    memset(more, 0, sizeof more);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH(host, a, 256));
    CHECK(host[0] == 1 && host[63] == 1 && more[0] == 7 && more[63] == 7);
  }

  // A side stream that was joined may be destroyed before the capture ends; one that was not leaves
  // work that the graph would lack.
  for (bool joins : {true, false}) {
    CUstream side;
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(side, fork, 0));
    OK(launch1(fill, 1, 64, side, a, 3u, 64u));
    OK(cuEventRecord(join, side));
    if (joins) OK(cuStreamWaitEvent(s, join, 0));
    OK(cuStreamDestroy(side));
    CUresult ended = cuStreamEndCapture(s, &graph);
    CHECK((ended == CUDA_SUCCESS) == joins && (graph != nullptr) == joins);
    if (!joins) continue;
    CHECK(node_count(graph) == 1);
    OK(cuGraphDestroy(graph));
  }

  // Captured into a graph that is there; a launch of a graph is captured as its child.
  OK(cuGraphCreate(&graph, 0));
  CUgraphNode first;
  OK(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  OK(cuStreamBeginCaptureToGraph(s, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuGraphLaunch(exec, s));
  OK(launch1(fill, 1, 64, s, b, 9u, 64u));
  CUgraph same;
  OK(cuStreamEndCapture(s, &same));
  CHECK(same == graph && node_count(graph) == 3 && edge_count(graph) == 2);
  // A capture into the caller's graph needs no question for it; any other needs one, and the
  // capture goes on after the refusal.
  OK(cuStreamBeginCaptureToGraph(s, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuStreamEndCapture(s, nullptr));
  CHECK(node_count(graph) == 3);
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamEndCapture(s, nullptr));
  OK(cuStreamEndCapture(s, &same));
  OK(cuGraphDestroy(same));
  CUgraphNode nodes[3];
  size_t n = 3;
  OK(cuGraphGetNodes(graph, nodes, &n));
  CUgraphNodeType type;
  OK(cuGraphNodeGetType(nodes[1], &type));
  CHECK(type == CU_GRAPH_NODE_TYPE_GRAPH);
  OK(cuGraphExecDestroy(exec));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH(host, b, 256));
  CHECK(host[0] == 9 && more[0] == 7);

  // Memory that the graph allocates keeps its address in every launch and is unmapped after its
  // free.
  CUdeviceptr p;
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&p, 256, s));
  OK(launch1(fill, 1, 64, s, p, 5u, 64u));
  OK(cuMemcpyDtoHAsync(host, p, 256, s));
  OK(cuMemFreeAsync(p, s));
  OK(cuStreamEndCapture(s, &graph));
  OK(cuGraphInstantiate(&exec, graph, 0));
  CUgraphExec second;
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiate(&second, graph, 0));
  for (int i = 0; i < 2; ++i) {
    memset(host, 0, sizeof host);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(host[0] == 5 && host[63] == 5);
  }
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(host, p + 4096 * 1024, 4));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));

  // What is allocated after a free of as much has its address; what may be used at the same time,
  // or has another size, has not.
  CUdeviceptr early, late, wider, beside;
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&early, 256, s));
  OK(launch1(fill, 1, 64, s, early, 6u, 64u));
  OK(cuMemcpyDtoHAsync(host, early, 256, s));
  OK(cuEventRecord(fork, s));
  OK(cuMemFreeAsync(early, s));
  OK(cuMemAllocAsync(&wider, 4u << 20, s));
  OK(cuMemAllocAsync(&late, 256, s));
  OK(launch1(fill, 1, 64, s, late, 8u, 64u));
  OK(cuMemcpyDtoHAsync(more, late, 256, s));
  OK(cuMemFreeAsync(late, s));
  OK(cuMemFreeAsync(wider, s));
  OK(cuStreamWaitEvent(other, fork, 0));
  OK(cuMemAllocAsync(&beside, 256, other));
  OK(cuMemFreeAsync(beside, other));
  OK(cuEventRecord(join, other));
  OK(cuStreamWaitEvent(s, join, 0));
  OK(cuStreamEndCapture(s, &graph));
  CHECK(early == late && wider != early && beside != early && beside != wider);
  OK(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    memset(host, 0, sizeof host), memset(more, 0, sizeof more);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(host[0] == 6 && host[63] == 6 && more[0] == 8 && more[63] == 8);
  }
  CUgraphNode twice;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&twice, graph, nullptr, 0, early));
  cuuint64_t used, held;
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &held));
  CHECK(used == 0 && held != 0);
  OK(cuDeviceGraphMemTrim(0));
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &held));
  CHECK(held == 0);
  return ok();
}
