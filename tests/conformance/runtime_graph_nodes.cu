// Nodes of a captured graph say what they do in the words of the runtime, and can be changed by
// them: the kernel is the stub that the program launched, copies go to and from symbols.
#include "conformance.h"

__device__ int variable[4];

__global__ void scale(int* values, int count, int by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= by;
}
__global__ void other(int*, int, int) {}

static cudaGraphNode_t node_of(cudaGraph_t graph, cudaGraphNodeType type) {
  size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType found;
    CHECK(cudaGraphNodeGetType(node, &found));
    if (found == type) return node;
  }
  EXPECT(!"a node of that type");
  return nullptr;
}

static int launch(cudaGraphExec_t exec, cudaStream_t stream, const int* first) {
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  int value;
  CHECK(cudaMemcpy(&value, first, sizeof value, cudaMemcpyDefault));
  return value;
}

static void kernels_and_copies() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int* host;
  CHECK(cudaMallocHost(&host, 64 * sizeof(int)));
  for (int i = 0; i < 64; ++i) host[i] = i + 1;
  DeviceVector<int> values(64);
  int* data = values.get();
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemcpyAsync(data, host, 64 * sizeof(int), cudaMemcpyHostToDevice, stream));
  scale<<<2, 32, 16, stream>>>(data, 64, 3);
  CHECK(cudaStreamEndCapture(stream, &graph));

  cudaGraphNode_t kernel = node_of(graph, cudaGraphNodeTypeKernel);
  cudaKernelNodeParams k;
  CHECK(cudaGraphKernelNodeGetParams(kernel, &k));
  EXPECT(k.func == (void*)scale && k.func != (void*)other);
  EXPECT(k.gridDim.x == 2 && k.gridDim.y == 1 && k.blockDim.x == 32 && k.sharedMemBytes == 16);
  EXPECT(*static_cast<int**>(k.kernelParams[0]) == data);
  EXPECT(*static_cast<int*>(k.kernelParams[2]) == 3);

  cudaGraphNode_t copy = node_of(graph, cudaGraphNodeTypeMemcpy);
  cudaMemcpy3DParms c;
  CHECK(cudaGraphMemcpyNodeGetParams(copy, &c));
  EXPECT(c.dstPtr.ptr == data && c.srcPtr.ptr == host);
  EXPECT(c.extent.width == 64 * sizeof(int) && c.extent.height == 1 && c.extent.depth == 1);

  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT(launch(exec, stream, data + 9) == 30);
  int count = 64, by = 5;
  void* arguments[] = {&data, &count, &by};
  k.kernelParams = arguments;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &k));
  EXPECT(launch(exec, stream, data + 9) == 50);
  c.srcPtr.ptr = host + 10;  // as read, but from elsewhere and shorter
  c.extent.width = 32 * sizeof(int);
  CHECK(cudaGraphExecMemcpyNodeSetParams(exec, copy, &c));
  EXPECT(launch(exec, stream, data + 9) == 100);
  EXPECT_ERROR(cudaGraphKernelNodeGetParams(copy, &k), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaGraphKernelNodeGetParams(kernel, nullptr), cudaErrorInvalidValue);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFreeHost(host));
  CHECK(cudaStreamDestroy(stream));
}

static void symbols() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int* host;
  CHECK(cudaMallocHost(&host, 8 * sizeof(int)));
  for (int i = 0; i < 8; ++i) host[i] = 100 + i;
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t to, from;
  const size_t one = sizeof(int);
  CHECK(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, variable, host, one, 0,
                                       cudaMemcpyHostToDevice));
  CHECK(cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, host + 4, variable, one, 0,
                                         cudaMemcpyDeviceToHost));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT(launch(exec, stream, host + 4) == 100);
  CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, to, variable, host + 1, one, 2 * one,
                                                 cudaMemcpyHostToDevice));
  CHECK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, from, host + 5, variable, one, 2 * one,
                                                   cudaMemcpyDeviceToHost));
  EXPECT(launch(exec, stream, host + 5) == 101);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphMemcpyNodeSetParamsToSymbol(to, variable, host + 2, one, 3 * one,
                                             cudaMemcpyHostToDevice));
  CHECK(cudaGraphMemcpyNodeSetParamsFromSymbol(from, host + 6, variable, one, 3 * one,
                                               cudaMemcpyDeviceToHost));
  EXPECT_ERROR(cudaGraphMemcpyNodeSetParamsToSymbol(to, variable, host, one, 4 * one,
                                                    cudaMemcpyHostToDevice),
               cudaErrorInvalidValue);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT(launch(exec, stream, host + 6) == 102);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFreeHost(host));
  CHECK(cudaStreamDestroy(stream));
}

int main() {
  kernels_and_copies();
  symbols();
  return passed();
}
