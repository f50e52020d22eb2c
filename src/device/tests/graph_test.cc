// Graphs and arrays over several generations, in one test process (as generation_test): made of
// every kind of node, captured, changed, then captured and replayed in a forked child whose driver
// is rewound. Also what cannot be restored is refused, by name.
//   graph_test
// Needs GPUCKPT_DRIVER = the simulated driver.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/tests/life.h"

namespace {

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n) {
  .reg .u32 %r<3>; .reg .u64 %d<2>;
  ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n];
  ld.global.u32 %r2, [%d1]; add.u32 %r2, %r2, %r1; st.global.u32 [%d1], %r2; ret;
}
)";

const char kDecider[] = R"(
.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count_down(.param .u64 handle, .param .u64 p) {
  .reg .u32 %r<3>; .reg .u64 %d<3>;
  ld.param.u64 %d1, [handle]; ld.param.u64 %d2, [p];
  ld.global.u32 %r1, [%d2]; sub.u32 %r1, %r1, 1; st.global.u32 [%d2], %r1;
  { .param .b64 a; .param .b32 b; st.param.b64 [a], %d1; st.param.b32 [b], %r1;
    call cudaGraphSetConditional, (a, b); }
  ret;
}
)";

CUcontext context;
CUfunction add, count_down;
CUdeviceptr memory;
int calls;
void called(void* by) { calls += *static_cast<int*>(by); }
int one = 1, ten = 10;

uint32_t word(int i) {
  uint32_t v;
  OK(cuMemcpyDtoH_v2(&v, memory + 4 * static_cast<unsigned>(i), 4));
  return v;
}
void run(CUgraphExec exec) {
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
}
CUDA_KERNEL_NODE_PARAMS_v2 kernel(CUdeviceptr* at, uint32_t* n, void** arguments) {
  CUDA_KERNEL_NODE_PARAMS_v2 p = {};
  arguments[0] = at;
  arguments[1] = n;
  p.func = add;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = arguments;
  return p;
}

// while (counter) { sum += by; --counter; if (counter) sum += 100; }, by explicit nodes and by a
// capture into a body. One executable's graph is destroyed, another's lives.
struct Loop {
  CUgraph graph, body, arm;
  CUgraphExec exec;
  CUgraphNode adding, loop_node;
  CUgraphConditionalHandle outer, inner;
  CUdeviceptr sum, counter;
  uint32_t by;

  static CUgraphNode conditional(CUgraph graph, const CUgraphNode* after,
                                 CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                 CUgraph* body) {
    CUgraphNodeParams p = {};
    p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    p.conditional.handle = handle;
    p.conditional.type = type;
    p.conditional.size = 1;
    p.conditional.ctx = context;
    CUgraphNode node;
    OK(cuGraphAddNode_v2(&node, graph, after, nullptr, after ? 1 : 0, &p));
    *body = p.conditional.phGraph_out[0];
    return node;
  }
  void make(CUdeviceptr words, uint32_t n) {
    sum = words;
    counter = words + 4;
    by = n;
    CUgraph gone;
    CUgraphConditionalHandle unused;
    OK(cuGraphCreate(&gone, 0));
    OK(cuGraphConditionalHandleCreate(&unused, gone, context, 0, 0));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphConditionalHandleCreate(&outer, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    OK(cuGraphConditionalHandleCreate(&inner, graph, context, 0, 0));
    OK(cuGraphDestroy(gone));
    loop_node = conditional(graph, nullptr, outer, CU_GRAPH_COND_TYPE_WHILE, &body);
    fill();
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
  void fill() {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void* adds[] = {&sum, &by};
    OK(cuStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, adds, nullptr));
    OK(cuStreamEndCapture(stream, nullptr));  // into a graph that is there
    OK(cuStreamDestroy_v2(stream));
    size_t count = 1;
    OK(cuGraphGetNodes(body, &adding, &count));
    void* ends[] = {&outer, &counter};
    CUDA_KERNEL_NODE_PARAMS_v2 p = kernel(&sum, &by, adds);
    p.func = count_down;
    p.kernelParams = ends;
    CUgraphNode node, last;
    OK(cuGraphAddKernelNode_v2(&node, body, &adding, 1, &p));
    ends[0] = &inner;
    CUdeviceptr copy = counter + 4;
    CUDA_MEMCPY3D words = {};
    words.srcMemoryType = words.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    words.srcDevice = counter;
    words.dstDevice = copy;
    words.WidthInBytes = 4;
    words.Height = words.Depth = 1;
    OK(cuGraphAddMemcpyNode(&last, body, &node, 1, &words, context));
    // One more than the counter, so that counting down gives its value.
    uint32_t one = 1;
    OK(cuGraphAddKernelNode_v2(&node, body, &last, 1, take(p, add, adds, &copy, &one)));
    ends[1] = &copy;
    OK(cuGraphAddKernelNode_v2(&last, body, &node, 1, take(p, count_down, ends, nullptr, nullptr)));
    conditional(body, &last, inner, CU_GRAPH_COND_TYPE_IF, &arm);
    uint32_t hundred = 100;
    OK(cuGraphAddKernelNode_v2(&node, arm, nullptr, 0, take(p, add, adds, &sum, &hundred)));
  }
  static CUDA_KERNEL_NODE_PARAMS_v2* take(CUDA_KERNEL_NODE_PARAMS_v2& p, CUfunction f, void** list,
                                          void* first, void* second) {
    p.func = f;
    p.kernelParams = list;
    if (first) list[0] = first;
    if (second) list[1] = second;
    return &p;
  }
  void check() {
    const uint32_t turns = 3;
    uint32_t got;
    OK(cuMemsetD32_v2(sum, 0, 1));
    OK(cuMemsetD32_v2(counter, turns, 1));
    run(exec);
    OK(cuMemcpyDtoH_v2(&got, sum, 4));
    CHECK(got == turns * by + (turns - 1) * 100);
  }
};

}  // namespace

int main() {
  alarm(100);
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUmodule module;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&add, module, "add"));
  OK(cuMemAlloc_v2(&memory, 4096));
  OK(cuMemsetD8_v2(memory, 0, 4096));
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  // Captured, its source gone; the kernel's node has a priority.
  CUgraph graph;
  CUgraphExec orphan;
  uint32_t n = 3;
  CUdeviceptr at = memory;
  void* arguments[2];
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  arguments[0] = &at;
  arguments[1] = &n;
  OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  refused(gpuckpt::kExitTimeout, "capture is in progress");
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&orphan, graph, 0));
  OK(cuGraphDestroy(graph));

  // With a child, a host function, a diamond, and memory of its own.
  CUgraph outer, child;
  CUgraphNode first, left, right, last, host, inner, alloc, use, gone;
  OK(cuGraphCreate(&outer, 0));
  OK(cuGraphCreate(&child, 0));
  n = 5;
  at = memory + 4;
  auto params = kernel(&at, &n, arguments);
  OK(cuGraphAddKernelNode_v2(&first, outer, nullptr, 0, &params));
  at = memory + 8;
  OK(cuGraphAddKernelNode_v2(&inner, child, nullptr, 0, &params));
  OK(cuGraphAddChildGraphNode(&left, outer, &first, 1, child));
  CUDA_HOST_NODE_PARAMS function = {called, &one};
  OK(cuGraphAddHostNode(&host, outer, &first, 1, &function));
  CUgraphNode both[] = {left, host};
  OK(cuGraphAddEmptyNode(&last, outer, both, 2));
  CUgraphExec exec;
  OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
  CUgraph owner;
  OK(cuGraphCreate(&owner, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 wanted = {};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = 64;
  OK(cuGraphAddMemAllocNode(&alloc, owner, nullptr, 0, &wanted));
  CUDA_MEMSET_NODE_PARAMS_v1 set = {wanted.dptr, 0, 7, 4, 16, 1};
  OK(cuGraphAddMemsetNode(&use, owner, &alloc, 1, &set, context));
  CUDA_MEMCPY3D_v2 copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = wanted.dptr;
  copy.dstDevice = memory + 64;
  copy.WidthInBytes = 64;
  copy.Height = copy.Depth = 1;
  OK(cuGraphAddMemcpyNode(&right, owner, &use, 1, &copy, context));
  CUgraphExec owner_exec;
  OK(cuGraphAddMemFreeNode(&gone, owner, &right, 1, wanted.dptr));
  // The same again, behind it: the driver gives it the same address.
  CUgraphNode alloc_again, use_again, copy_again, gone_again;
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 wanted_again = wanted;
  wanted_again.dptr = 0;
  OK(cuGraphAddMemAllocNode(&alloc_again, owner, &gone, 1, &wanted_again));
  CHECK(wanted_again.dptr == wanted.dptr);
  set.value = 9;
  OK(cuGraphAddMemsetNode(&use_again, owner, &alloc_again, 1, &set, context));
  copy.dstDevice = memory + 192;
  OK(cuGraphAddMemcpyNode(&copy_again, owner, &use_again, 1, &copy, context));
  OK(cuGraphAddMemFreeNode(&gone_again, owner, &copy_again, 1, wanted.dptr));
  OK(cuGraphInstantiateWithFlags(&owner_exec, owner, 0));

  // Arrays, a mipmap's level and what kernels would sample them by; one copy of a graph goes
  // through.
  CUDA_ARRAY3D_DESCRIPTOR_v2 shape = {8, 4, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array, level;
  CUmipmappedArray mipmap;
  OK(cuArray3DCreate_v2(&array, &shape));
  OK(cuMipmappedArrayCreate(&mipmap, &shape, 3));
  OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
  uint32_t texels[32], back[32];
  for (uint32_t i = 0; i < 32; ++i) texels[i] = i * 3 + 1;
  auto rectangle = [&](CUarray a, unsigned width, unsigned height, void* from, void* to) {
    CUDA_MEMCPY2D_v2 c = {};
    c.srcMemoryType = from ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    c.dstMemoryType = from ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    c.srcHost = from;
    c.dstHost = to;
    c.srcArray = from ? nullptr : a;
    c.dstArray = from ? a : nullptr;
    c.srcPitch = c.dstPitch = c.WidthInBytes = width * 4;
    c.Height = height;
    OK(cuMemcpy2D_v2(&c));
  };
  rectangle(array, 8, 4, texels, nullptr);
  rectangle(level, 4, 2, texels + 8, nullptr);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC sampling = {};
  sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUtexObject texture, hole;
  CUsurfObject surface;
  OK(cuTexObjectCreate(&hole, &resource, &sampling, nullptr));
  OK(cuTexObjectCreate(&texture, &resource, &sampling, nullptr));
  OK(cuSurfObjectCreate(&surface, &resource));
  OK(cuTexObjectDestroy(hole));
  CUgraph fetch;
  CUgraphNode fetching;
  CUgraphExec fetch_exec;
  OK(cuGraphCreate(&fetch, 0));
  CUDA_MEMCPY3D_v2 row = {};
  row.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  row.srcArray = array;
  row.srcY = 1;
  row.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  row.dstDevice = memory + 256;
  row.WidthInBytes = 32;
  row.Height = row.Depth = 1;
  OK(cuGraphAddMemcpyNode(&fetching, fetch, nullptr, 0, &row, context));
  OK(cuGraphInstantiateWithFlags(&fetch_exec, fetch, 0));
  auto check_arrays = [&] {
    memset(back, 0, sizeof back);
    rectangle(array, 8, 4, nullptr, back);
    CHECK(memcmp(back, texels, 128) == 0);
    rectangle(level, 4, 2, nullptr, back);
    CHECK(memcmp(back, texels + 8, 32) == 0);
    CUDA_RESOURCE_DESC asked;
    OK(cuTexObjectGetResourceDesc(&asked, texture));
    CHECK(asked.res.array.hArray == array);
    OK(cuSurfObjectGetResourceDesc(&asked, surface));
    CHECK(asked.res.array.hArray == array);
    CUDA_TEXTURE_DESC how;
    OK(cuTexObjectGetTextureDesc(&how, texture));
    CHECK(how.filterMode == CU_TR_FILTER_MODE_LINEAR);
    CHECK(cuTexObjectGetTextureDesc(&how, hole) != CUDA_SUCCESS);
    OK(cuMemsetD8_v2(memory + 256, 0, 32));
    OK(cuGraphLaunch(fetch_exec, nullptr));
    OK(cuCtxSynchronize());
    CHECK(word(64) == texels[8] && word(71) == texels[15]);
    texels[9] += 1;  // the next generation has other contents
    rectangle(array, 8, 4, texels, nullptr);
    rectangle(level, 4, 2, texels + 8, nullptr);
  };

  // Allocated, but not freed yet: its contents would be lost.
  CUgraph leaky;
  CUgraphExec leaky_exec;
  OK(cuGraphCreate(&leaky, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 other = wanted;
  CUgraphNode ignored;
  OK(cuGraphAddMemAllocNode(&ignored, leaky, nullptr, 0, &other));
  OK(cuGraphInstantiateWithFlags(&leaky_exec, leaky, 0));
  run(leaky_exec);
  refused(gpuckpt::kExitRefused, "cuGraphLaunch");
  OK(cuMemFree_v2(other.dptr));
  OK(cuGraphExecDestroy(leaky_exec));
  OK(cuGraphDestroy(leaky));

  uint32_t expect[3] = {}, step[3] = {3, 5, 5};
  int expect_calls = 0, by = 1;
  auto check = [&] {
    run(orphan);
    run(exec);
    run(owner_exec);
    for (int i = 0; i < 3; ++i) {
      expect[i] += step[i];
      CHECK(word(i) == expect[i]);
    }
    expect_calls += by;
    CHECK(calls == expect_calls && word(16) == 7 && word(31) == 7);
    CHECK(word(48) == 9 && word(63) == 9);
    size_t nodes = 0, edges = 0;
    OK(cuGraphGetNodes(outer, nullptr, &nodes));
    OK(cuGraphGetEdges_v2(outer, nullptr, nullptr, nullptr, &edges));
    CHECK(nodes == 4 && edges == 4);
    CUgraphNode before[2];
    size_t two = 2;
    OK(cuGraphNodeGetDependencies_v2(last, before, nullptr, &two));
    CHECK(two == 2 &&
          ((before[0] == left && before[1] == host) || (before[0] == host && before[1] == left)));
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 asked;
    OK(cuGraphMemAllocNodeGetParams(alloc, &asked));
    CHECK(asked.dptr == wanted.dptr);
    OK(cuGraphMemAllocNodeGetParams(alloc_again, &asked));
    CHECK(asked.dptr == wanted.dptr);
  };
  check();
  check_arrays();
  CUmodule decider;
  OK(cuModuleLoadData(&decider, kDecider));
  OK(cuModuleGetFunction(&count_down, decider, "count_down"));
  Loop kept, orphan_loop;
  kept.make(memory + 1024, 7);
  orphan_loop.make(memory + 2048, 11);
  OK(cuGraphDestroy(orphan_loop.graph));
  kept.check();
  orphan_loop.check();
  for (int generation = 1; generation <= 3; ++generation) {
    next_generation();
    CHECK(gpuckpt::generation() == static_cast<unsigned>(generation));
    check();
    check_arrays();
    kept.check();
    orphan_loop.check();
    // The program goes on building in the graph it has, and makes others.
    CUgraphNodeType kind;
    OK(cuGraphNodeGetType(kept.loop_node, &kind));
    CHECK(kind == CU_GRAPH_NODE_TYPE_CONDITIONAL);
    OK(cuGraphExecDestroy(kept.exec));
    CUDA_KERNEL_NODE_PARAMS_v2 of_body;
    OK(cuGraphKernelNodeGetParams_v2(kept.adding, &of_body));
    CHECK(of_body.func == add && *static_cast<uint32_t*>(of_body.kernelParams[1]) == kept.by);
    kept.by += 1;
    void* changed_arguments[] = {&kept.sum, &kept.by};
    of_body.kernelParams = changed_arguments;
    OK(cuGraphKernelNodeSetParams_v2(kept.adding, &of_body));
    OK(cuGraphInstantiateWithFlags(&kept.exec, kept.graph, 0));
    kept.check();
    OK(cuGraphExecDestroy(orphan_loop.exec));
    orphan_loop.make(memory + 2048, 13);
    orphan_loop.check();
    if (generation == 2) OK(cuGraphDestroy(orphan_loop.graph));
    // Changed in the executable alone; the next generation must know.
    n = 5 + static_cast<uint32_t>(generation);
    at = memory + 4;
    params = kernel(&at, &n, arguments);
    OK(cuGraphExecKernelNodeSetParams_v2(exec, first, &params));
    step[1] = n;
    function.userData = &ten;
    by = 10;
    OK(cuGraphExecHostNodeSetParams(exec, host, &function));
    CUgraph embedded;
    CUgraphNode its;
    OK(cuGraphChildGraphNodeGetGraph(left, &embedded));
    size_t count = 1;
    OK(cuGraphGetNodes(embedded, &its, &count));
    CHECK(count == 1);
    at = memory + 8;
    n = 20;
    OK(cuGraphExecKernelNodeSetParams_v2(exec, its, &params));
    step[2] = 20;
    check();
  }
  OK(cuMipmappedArrayDestroy(mipmap));
  CHECK(cuArrayDestroy(level) == CUDA_ERROR_INVALID_HANDLE);
  OK(cuTexObjectDestroy(texture));
  CHECK(cuTexObjectDestroy(texture) != CUDA_SUCCESS);
  OK(cuArrayDestroy(array));
  // A dead handle stays dead.
  OK(cuGraphDestroy(outer));
  CHECK(cuGraphDestroy(outer) == CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphExecDestroy(kept.exec));
  OK(cuGraphDestroy(kept.graph));
  CHECK(cuGraphDestroy(kept.graph) == CUDA_ERROR_INVALID_VALUE);
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  _exit(0);
}
