// Drivers place a library's variables at the first use of one of its kernels, whatever call that
// is. A restore repeats it in the old order, so that the variables lie where they lay.
#include "device/tests/life.h"
#include "intercept/generated/real_driver.h"

namespace {

// Tells where its variable is, and counts in it.
const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .global .align 8 .b8 table[%d];
.visible .entry tell(.param .u64 out) {
  .reg .b64 %%p, %%a; .reg .b32 %%v;
  ld.param.u64 %%p, [out]; mov.u64 %%a, counter; st.global.u64 [%%p], %%a;
  ld.global.u32 %%v, [counter]; add.u32 %%v, %%v, 1; st.global.u32 [counter], %%v;
  st.global.u32 [%%p+8], %%v; ret;
}
)";

struct Told {
  uint64_t address;
  uint32_t count;
};

CUdeviceptr out;

struct Library {
  CUlibrary library;
  CUkernel kernel;
  Told told;

  // Of different sizes, so that another order leads to other addresses.
  void load(int bytes) {
    char text[sizeof kPtx + 16];
    snprintf(text, sizeof text, kPtx, bytes);
    OK(cuLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(cuLibraryGetKernel(&kernel, library, "tell"));
  }
  CUfunction as_function() const { return reinterpret_cast<CUfunction>(kernel); }
  Told ask() const {
    Told now;
    void* arguments[] = {&out};
    OK(cuLaunchKernel(as_function(), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    OK(cuMemcpyDtoH_v2(&now, out, sizeof now));
    return now;
  }
  void use() { told = ask(); }
  void check() {
    const Told now = ask();
    CHECK(now.address == told.address);
    CHECK(now.count == ++told.count);
  }
};

Library attribute, occupancy, launched, gone, function, node, asked, unused;

// The first use of each is another call, in an order that is not that of the loads.
void make() {
  Library* all[] = {&attribute, &occupancy, &launched, &gone, &function, &node, &asked, &unused};
  for (int i = 0; i < 8; ++i) all[i]->load(8 + 5000 * i);
  launched.use();
  gone.use();
  int value;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, occupancy.as_function(), 32, 0));
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64, attribute.kernel,
                          0));
  CUfunction f;
  OK(cuKernelGetFunction(&f, function.kernel));
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode ignored;
  CUDA_KERNEL_NODE_PARAMS params = {};
  void* arguments[] = {&out};
  params.func = node.as_function();
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddKernelNode_v2(&ignored, graph, nullptr, 0, &params));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuLibraryUnload(gone.library));
  CUdeviceptr address;
  size_t bytes;
  OK(cuLibraryGetGlobal(&address, &bytes, asked.library, "counter"));
  for (Library* l : {&attribute, &occupancy, &function, &node, &asked}) l->use();
  CHECK(asked.told.address == address);
}

}  // namespace

int main() {
  alarm(100);
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc_v2(&out, 256));
  make();
  Library later[3];
  for (unsigned generation = 1; generation <= 3; ++generation) {
    next_generation();
    CHECK(gpuckpt::generation() == generation);
    for (Library* l : {&unused, &node, &asked, &function, &occupancy, &attribute, &launched})
      if (l != &unused || generation > 1) l->check();
    if (generation == 1) unused.use();
    for (unsigned i = 0; i + 1 < generation; ++i) later[i].check();
    later[generation - 1].load(static_cast<int>(9000 * generation));
    later[generation - 1].use();
  }
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  _exit(0);
}
