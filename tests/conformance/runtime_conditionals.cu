// Conditional nodes whose values kernels set (cudaGraphSetConditional): if, else, while, switch,
// one in another; and what a launch begins with.
#include "conformance.h"

__global__ void decide(cudaGraphConditionalHandle handle, const int* value) {
  cudaGraphSetConditional(handle, (unsigned)*value);
}
__global__ void count_down(cudaGraphConditionalHandle handle, int* left) {
  cudaGraphSetConditional(handle, --*left > 0);
}
__global__ void add(int* to, int by) { *to += by; }

static cudaGraphNode_t kernel(cudaGraph_t graph, const cudaGraphNode_t* after, void* function,
                              void** arguments) {
  cudaKernelNodeParams p = {};
  p.func = function;
  p.gridDim = p.blockDim = dim3(1);
  p.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &p));
  return node;
}

static cudaGraphNode_t conditional(cudaGraph_t graph, const cudaGraphNode_t* after,
                                   cudaGraphConditionalHandle handle,
                                   cudaGraphConditionalNodeType type, unsigned size,
                                   cudaGraph_t* bodies) {
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeConditional;
  p.conditional.handle = handle;
  p.conditional.type = type;
  p.conditional.size = size;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, after, nullptr, after ? 1 : 0, &p));
  for (unsigned i = 0; i < size; ++i) bodies[i] = p.conditional.phGraph_out[i];
  return node;
}

// decide -> conditional of `size` bodies, of which body i adds 10^i.
static void branches(cudaGraphConditionalNodeType type, unsigned size, const int* results) {
  int *value, *sum;
  CHECK(cudaMalloc(&value, sizeof *value));
  CHECK(cudaMalloc(&sum, sizeof *sum));
  cudaGraph_t graph, bodies[4];
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  void* decide_arguments[] = {&handle, &value};
  cudaGraphNode_t first = kernel(graph, nullptr, (void*)decide, decide_arguments);
  conditional(graph, &first, handle, type, size, bodies);
  for (unsigned i = 0, by = 1; i < size; ++i, by *= 10) {
    void* arguments[] = {&sum, &by};
    kernel(bodies[i], nullptr, (void*)add, arguments);
  }
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int v = 0; v < 4; ++v) {
    int got = 0;
    CHECK(cudaMemcpy(value, &v, sizeof v, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT(got == results[v]);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(value));
  CHECK(cudaFree(sum));
}

// while (left) { sum += 1; if (--left) ... else sum += 100; }, from the default value 1.
static void nested() {
  int *left, *sum, by_one = 1, by_hundred = 100;
  CHECK(cudaMalloc(&left, sizeof *left));
  CHECK(cudaMalloc(&sum, sizeof *sum));
  cudaGraph_t graph, loop, arms[2];
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle outer, inner;
  CHECK(cudaGraphConditionalHandleCreate(&outer, graph, 1, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&inner, graph, 1, cudaGraphCondAssignDefault));
  conditional(graph, nullptr, outer, cudaGraphCondTypeWhile, 1, &loop);
  void* one[] = {&sum, &by_one};
  void* hundred[] = {&sum, &by_hundred};
  void* count[] = {&outer, &left};
  void* decide_arguments[] = {&inner, &left};
  cudaGraphNode_t a = kernel(loop, nullptr, (void*)add, one);
  cudaGraphNode_t b = kernel(loop, &a, (void*)count_down, count);
  cudaGraphNode_t c = kernel(loop, &b, (void*)decide, decide_arguments);
  conditional(loop, &c, inner, cudaGraphCondTypeIf, 2, arms);
  kernel(arms[1], nullptr, (void*)add, hundred);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int turns = 1; turns < 4; ++turns) {
    int got = 0;
    CHECK(cudaMemcpy(left, &turns, sizeof turns, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT(got == turns + 100);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

int main() {
  const int if_only[] = {0, 1, 1, 1}, if_else[] = {10, 1, 1, 1}, one_of[] = {1, 10, 100, 0};
  branches(cudaGraphCondTypeIf, 1, if_only);
  branches(cudaGraphCondTypeIf, 2, if_else);
  branches(cudaGraphCondTypeSwitch, 3, one_of);
  nested();
  return passed();
}
