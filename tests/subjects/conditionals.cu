// A solver whose loop runs on the device: a graph with a while node that goes on until it has
// converged, a switch by the step in it, and an if whose kernel is captured from a stream. Half of
// the steps launch an executable whose graph is gone.
#include "subject.h"

__global__ void start(uint32_t* left, uint32_t turns) { *left = turns; }
__global__ void turn(cudaGraphConditionalHandle loop, cudaGraphConditionalHandle which,
                     cudaGraphConditionalHandle rare, uint32_t* left, uint32_t* x) {
  *x = mix(*x);
  *left -= 1;
  cudaGraphSetConditional(which, *x % 4);
  cudaGraphSetConditional(rare, *x % 5 == 0);
  cudaGraphSetConditional(loop, *left > 0);
}
__global__ void add(uint32_t* x, uint32_t by) { *x += by; }

static void kernel(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                   const void* function, void** arguments) {
  cudaKernelNodeParams p = {};
  p.func = const_cast<void*>(function);
  p.gridDim = p.blockDim = dim3(1);
  p.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(node, graph, after, after ? 1 : 0, &p));
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

struct Solver {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t first;
  uint32_t *left, *x, turns = 5;

  Solver(uint32_t seed, cudaStream_t stream) {
    CHECK(cudaMalloc(&left, sizeof *left));
    CHECK(cudaMalloc(&x, sizeof *x));
    CHECK(cudaMemcpy(x, &seed, sizeof seed, cudaMemcpyHostToDevice));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle loop, which, rare;
    CHECK(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&which, graph, 0, 0));
    CHECK(cudaGraphConditionalHandleCreate(&rare, graph, 0, 0));
    void* starts[] = {&left, &turns};
    kernel(&first, graph, nullptr, reinterpret_cast<const void*>(start), starts);
    cudaGraph_t body, cases[3], seldom;
    conditional(graph, &first, loop, cudaGraphCondTypeWhile, 1, &body);
    void* turns_arguments[] = {&loop, &which, &rare, &left, &x};
    cudaGraphNode_t node, chosen;
    kernel(&node, body, nullptr, reinterpret_cast<const void*>(turn), turns_arguments);
    chosen = conditional(body, &node, which, cudaGraphCondTypeSwitch, 3, cases);
    for (uint32_t i = 0; i < 3; ++i) {
      uint32_t by = 1000 * (i + 1);
      void* adds[] = {&x, &by};
      kernel(&node, cases[i], nullptr, reinterpret_cast<const void*>(add), adds);
    }
    conditional(body, &chosen, rare, cudaGraphCondTypeIf, 1, &seldom);
    CHECK(cudaStreamBeginCaptureToGraph(stream, seldom, nullptr, nullptr, 0,
                                        cudaStreamCaptureModeGlobal));
    add<<<1, 1, 0, stream>>>(x, 77);
    CHECK(cudaStreamEndCapture(stream, &seldom));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
  }

  static uint32_t expected(uint32_t value, uint32_t turns) {
    for (; turns; --turns) {
      value = mix(value);
      const bool rare = value % 5 == 0;
      if (value % 4 < 3) value += 1000 * (value % 4 + 1);
      if (rare) value += 77;
    }
    return value;
  }
};

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Solver kept(3, stream), orphan(4, stream);
  CHECK(cudaGraphDestroy(orphan.graph));
  Digest digest;
  uint32_t values[] = {3, 4};
  for (int step = 1; step <= steps.count(); ++step) {
    Solver& solver = step % 2 ? kept : orphan;
    uint32_t& value = values[step % 2 ? 0 : 1];
    if (step % 5 == 0) {  // more turns from now on, in the executable alone
      kept.turns += 1;
      void* starts[] = {&kept.left, &kept.turns};
      cudaKernelNodeParams p = {};
      p.func = reinterpret_cast<void*>(start);
      p.gridDim = p.blockDim = dim3(1);
      p.kernelParams = starts;
      CHECK(cudaGraphExecKernelNodeSetParams(kept.exec, kept.first, &p));
    }
    CHECK(cudaGraphLaunch(solver.exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    value = Solver::expected(value, solver.turns);
    uint32_t got = 0;
    CHECK(cudaMemcpy(&got, solver.x, sizeof got, cudaMemcpyDeviceToHost));
    EXPECT(got == value);
    digest.add(got);
    steps.report(step, digest);
  }
  CHECK(cudaGraphExecDestroy(kept.exec));
  CHECK(cudaGraphExecDestroy(orphan.exec));
  CHECK(cudaGraphDestroy(kept.graph));
  return steps.finish(digest);
}
