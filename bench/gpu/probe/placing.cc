// Experiment 6: which calls place a library's code and variables on the device, and what else
// takes room beside them. Between the calls, modules with one byte are loaded: their addresses
// advance by what was placed meanwhile.
// usage: placing IMAGE   (a cubin or PTX of placed.cu; CUDA_MODULE_LOADING=EAGER|LAZY from outside)
#include "api.h"

#include <vector>

#include "realm.h"

namespace {

Api api;
const char kMarker[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n.visible .global .align 1 .b8 mark[1];\n";
CUdeviceptr last_mark;

#define CALL(name) reinterpret_cast<decltype(&::name)>(dlsym(api.handle, #name))

CUdeviceptr mark() {
  CUmodule module;
  CUdeviceptr p = 0;
  size_t bytes;
  if (api.cuModuleLoadDataEx(&module, kMarker, 0, nullptr, nullptr)) return 0;
  api.cuModuleGetGlobal(&p, &bytes, module, "mark");
  return p;
}

// What the call before has placed: 0x100 is the marker itself.
void after(const char* what, int rc) {
  const CUdeviceptr now = mark();
  stage("\"value\": \"%s\", \"rc\": %d, \"marker\": \"0x%llx\", \"by\": \"%s0x%llx\"", what, rc,
        now, now < last_mark ? "-" : "", now < last_mark ? last_mark - now : now - last_mark);
  last_mark = now;
}

std::vector<char> read_file(const char* path) {
  std::vector<char> bytes;
  FILE* f = fopen(path, "rb");
  if (!f) return bytes;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
    bytes.insert(bytes.end(), part, part + n);
  fclose(f);
  bytes.push_back(0);
  return bytes;
}

CUdeviceptr out;

int launch(CUfunction f) {
  void* arguments[] = {&out};
  int rc = api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
  return rc ? rc : static_cast<int>(api.cuCtxSynchronize());
}

void library_calls(const std::vector<char>& image) {
  auto load = [&] {
    CUlibrary l = nullptr;
    CALL(cuLibraryLoadData)(&l, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    return l;
  };
  auto kernel = [&](CUlibrary l, const char* name) {
    CUkernel k = nullptr;
    CALL(cuLibraryGetKernel)(&k, l, name);
    return k;
  };
  CUdeviceptr p = 0;
  size_t bytes;
  int value;
  mark();
  last_mark = mark();
  after("nothing", 0);
  CUlibrary a = load();
  after("A cuLibraryLoadData", a ? 0 : 1);
  CUkernel k = kernel(a, "first");
  after("A cuLibraryGetKernel", k ? 0 : 1);
  after("A cuKernelGetAttribute",
        CALL(cuKernelGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 0));
  after("A cuKernelSetAttribute",
        CALL(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, k, 0));
  size_t offset;
  after("A cuKernelGetParamInfo", CALL(cuKernelGetParamInfo)(k, 0, &offset, &bytes));
  CUfunction f = nullptr;
  after("A cuKernelGetFunction first", CALL(cuKernelGetFunction)(&f, k));
  after("A launch first", launch(f));
  after("A cuLibraryGetGlobal second_words",
        CALL(cuLibraryGetGlobal)(&p, &bytes, a, "second_words"));
  stage("\"value\": \"A second_words\", \"is\": \"0x%llx\"", p);
  CALL(cuLibraryGetGlobal)(&p, &bytes, a, "first_words");
  stage("\"value\": \"A first_words\", \"is\": \"0x%llx\"", p);
  after("A cuLibraryGetGlobal fixed", CALL(cuLibraryGetGlobal)(&p, &bytes, a, "fixed"));
  stage("\"value\": \"A fixed\", \"is\": \"0x%llx\"", p);
  k = kernel(a, "second");
  CALL(cuKernelGetFunction)(&f, k);
  after("A cuKernelGetFunction second", 0);
  after("A launch second", launch(f));

  CUlibrary b = load();
  k = kernel(b, "first");
  after("B load, get kernel", 0);
  after("B launch of the CUkernel", launch(reinterpret_cast<CUfunction>(k)));
  after("B cuLibraryGetGlobal", CALL(cuLibraryGetGlobal)(&p, &bytes, b, "first_words"));
  stage("\"value\": \"B first_words\", \"is\": \"0x%llx\"", p);

  CUlibrary c = load();
  k = kernel(c, "first");
  after("C load, get kernel", 0);
  after("C cuFuncGetAttribute of the CUkernel",
        CALL(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                 reinterpret_cast<CUfunction>(k)));
  after("C cuFuncSetAttribute of the CUkernel",
        CALL(cuFuncSetAttribute)(reinterpret_cast<CUfunction>(k),
                                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  after("C cuOccupancyMaxActiveBlocksPerMultiprocessor of the CUkernel",
        CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&value, reinterpret_cast<CUfunction>(k),
                                                          32, 0));

  CUlibrary d = load();
  after("D load", 0);
  CUmodule m = nullptr;
  after("D cuLibraryGetModule", CALL(cuLibraryGetModule)(&m, d));
  after("D cuModuleGetFunction first", api.cuModuleGetFunction(&f, m, "first"));
  after("D launch first", launch(f));
  after("D cuModuleGetGlobal second_words", api.cuModuleGetGlobal(&p, &bytes, m, "second_words"));
  stage("\"value\": \"D second_words\", \"is\": \"0x%llx\"", p);
  api.cuModuleGetGlobal(&p, &bytes, m, "first_words");
  stage("\"value\": \"D first_words\", \"is\": \"0x%llx\"", p);

  CUlibrary e = load();
  after("E load", 0);
  unsigned count = 0;
  after("E cuLibraryGetKernelCount", CALL(cuLibraryGetKernelCount)(&count, e));
  std::vector<CUkernel> kernels(count);
  after("E cuLibraryEnumerateKernels", CALL(cuLibraryEnumerateKernels)(kernels.data(), count, e));
  after("E cuLibraryUnload", CALL(cuLibraryUnload)(e));
  after("D cuLibraryUnload", CALL(cuLibraryUnload)(d));
  CUlibrary g = load();
  CALL(cuLibraryGetModule)(&m, g);
  CALL(cuLibraryGetGlobal)(&p, &bytes, g, "first_words");
  stage("\"value\": \"G first_words, after D went\", \"is\": \"0x%llx\"", p);
  after("G module", 0);
}

void module_calls(const std::vector<char>& image) {
  CUmodule m = nullptr;
  CUfunction f;
  CUdeviceptr p;
  size_t bytes;
  after("M cuModuleLoadDataEx", api.cuModuleLoadDataEx(&m, image.data(), 0, nullptr, nullptr));
  after("M cuModuleGetFunction first", api.cuModuleGetFunction(&f, m, "first"));
  after("M launch first", launch(f));
  after("M cuModuleGetGlobal second_words", api.cuModuleGetGlobal(&p, &bytes, m, "second_words"));
  stage("\"value\": \"M second_words\", \"is\": \"0x%llx\"", p);
  CUstream stream;
  after("stream", api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event;
  after("event", CALL(cuEventCreate)(&event, 0));
  CUdeviceptr memory;
  after("cuMemAlloc 256", api.cuMemAlloc(&memory, 256));
  stage("\"value\": \"cuMemAlloc 256\", \"is\": \"0x%llx\"", memory);
  after("memset", api.cuMemsetD8(memory, 1, 256));
  after("memset D16 2D", CALL(cuMemsetD2D16_v2)(memory, 32, 1, 8, 4));
  after("copy on the device", CALL(cuMemcpyDtoD_v2)(memory, memory + 128, 128));
  CUgraph graph;
  after("graph", CALL(cuGraphCreate)(&graph, 0));
  CUgraphExec exec;
  CUgraphNode node;
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  void* arguments[] = {&out};
  kernel.func = f;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CALL(cuGraphAddKernelNode_v2)(&node, graph, nullptr, 0, &kernel);
  after("graph instantiated", CALL(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  after("graph launched", CALL(cuGraphLaunch)(exec, nullptr));
  api.cuCtxSynchronize();
}

}  // namespace

int main(int argc, char** argv) {
  probe::evidence_install();
  std::vector<char> image = read_file(argc > 1 ? argv[1] : "");
  void* handle = dlopen(probe::find_driver(), RTLD_NOW);
  if (!handle || image.empty()) {
    stage("\"stage\": \"no driver or no image\"");
    return 3;
  }
  api.bind(handle);
  CUdevice device;
  CUcontext context;
  if (enter_context(api, &device, &context)) return 3;
  api.cuMemAlloc(&out, 8);
  library_calls(image);
  module_calls(image);
  stage("\"stage\": \"done\"");
}
