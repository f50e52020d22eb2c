// A graph with a child graph and with memory of its own, whose executable is updated and launched
// while others of its launches run, is cloned, made again from another graph, and outlives its
// source; beside it one that was captured from three streams.
#include "subject.h"

constexpr int kWords = 2048;

__global__ void stir(uint32_t* data, const uint32_t* from, uint32_t seed) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = mix(data[i] + from[(i * 7 + seed) % kWords] + seed);
}

struct Launch {
  uint32_t *data, *from, seed;
  void* arguments[3] = {&data, &from, &seed};
  cudaKernelNodeParams params() {
    cudaKernelNodeParams p = {};
    p.func = reinterpret_cast<void*>(stir);
    p.gridDim = dim3(kWords / 256);
    p.blockDim = dim3(256);
    p.kernelParams = arguments;
    return p;
  }
};

cudaGraphNode_t add_kernel(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, Launch launch) {
  cudaGraphNode_t node;
  launch.arguments[0] = &launch.data, launch.arguments[1] = &launch.from,
  launch.arguments[2] = &launch.seed;
  cudaKernelNodeParams p = launch.params();
  CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &p));
  return node;
}

// Two kernels that use memory which lives inside of one launch, around a child graph of two more.
struct Machine {
  cudaGraph_t graph, inner;
  cudaGraphNode_t first, child;
  cudaGraphExec_t executable;

  void build(uint32_t* a, uint32_t* b, uint32_t seed) {
    CHECK(cudaGraphCreate(&inner, 0));
    cudaGraphNode_t one = add_kernel(inner, {}, {a, b, seed});
    add_kernel(inner, {one}, {b, a, seed + 1});
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemAllocNodeParams memory = {};
    memory.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.poolProps.location.type = cudaMemLocationTypeDevice;
    memory.bytesize = kWords * sizeof(uint32_t);
    cudaGraphNode_t allocate, copy, last, release;
    CHECK(cudaGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &memory));
    auto* scratch = static_cast<uint32_t*>(memory.dptr);
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &allocate, 1, scratch, b,
                                   kWords * sizeof(uint32_t), cudaMemcpyDeviceToDevice));
    first = add_kernel(graph, {copy}, {scratch, a, seed});
    CHECK(cudaGraphAddChildGraphNode(&child, graph, &first, 1, inner));
    last = add_kernel(graph, {child}, {a, scratch, seed + 2});
    CHECK(cudaGraphAddMemFreeNode(&release, graph, &last, 1, scratch));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
  }
  // The child's kernels with another seed, while launches of before still run.
  void update(uint32_t* a, uint32_t* b, uint32_t seed) {
    cudaGraph_t other;
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t one = add_kernel(other, {}, {b, a, seed});
    add_kernel(other, {one}, {a, b, seed + 1});
    CHECK(cudaGraphExecChildGraphNodeSetParams(executable, child, other));
    CHECK(cudaGraphDestroy(other));
  }
  void drop() {
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(inner));
  }
};

cudaGraphExec_t capture(cudaStream_t (&streams)[3], uint32_t* a, uint32_t* b, uint32_t* c,
                        uint32_t seed) {
  cudaEvent_t fork, join[2];
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  for (auto& e : join) CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
  CHECK(cudaEventRecord(fork, streams[0]));
  CHECK(cudaStreamWaitEvent(streams[1], fork));
  CHECK(cudaStreamWaitEvent(streams[2], fork));
  stir<<<kWords / 256, 256, 0, streams[1]>>>(a, c, seed);
  stir<<<kWords / 256, 256, 0, streams[2]>>>(b, c, seed + 1);
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaEventRecord(join[i], streams[i + 1]));
    CHECK(cudaStreamWaitEvent(streams[0], join[i]));
  }
  stir<<<kWords / 256, 256, 0, streams[0]>>>(c, a, seed + 2);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamEndCapture(streams[0], &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(fork));
  for (auto& e : join) CHECK(cudaEventDestroy(e));
  return executable;
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  cudaStream_t streams[3];
  for (auto& s : streams) CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  uint32_t* data[3];
  std::vector<uint32_t> host(kWords);
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < kWords; ++i) host[i] = mix(k * kWords + i);
    CHECK(cudaMalloc(&data[k], kWords * sizeof(uint32_t)));
    CHECK(cudaMemcpy(data[k], host.data(), kWords * sizeof(uint32_t), cudaMemcpyHostToDevice));
  }
  Machine machine;
  machine.build(data[0], data[1], 1);
  cudaGraphExec_t captured = capture(streams, data[0], data[1], data[2], 5);
  Digest digest;
  uint32_t random = 11;
  for (int step = 1; step <= steps.count(); ++step) {
    for (int i = 0; i < 4; ++i) {
      random = mix(random + 1);
      CHECK(cudaGraphLaunch(machine.executable, streams[0]));
      if (random % 3 == 0) machine.update(data[0], data[1], random);
      if (random % 4 == 0) CHECK(cudaGraphLaunch(captured, streams[0]));
    }
    CHECK(cudaMemcpyAsync(host.data(), data[random % 3], kWords * sizeof(uint32_t),
                          cudaMemcpyDeviceToHost, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    digest.add(host);
    if (random % 7 == 0) {
      machine.drop();
      machine.build(data[0], data[1], random);
    }
    if (random % 5 == 0) {
      CHECK(cudaGraphExecDestroy(captured));
      captured = capture(streams, data[1], data[0], data[2], random);
    }
    if (random % 6 == 0) CHECK(cudaDeviceGraphMemTrim(0));
    steps.report(step, digest);
  }
  machine.drop();
  CHECK(cudaGraphExecDestroy(captured));
  return steps.finish(digest);
}
