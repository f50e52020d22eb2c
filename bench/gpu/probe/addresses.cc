// Experiment 6: are addresses and handles the same in every process that does the same things?
// usage: addresses plain|isolated   (CUDA_MODULE_LOADING=EAGER|LAZY from outside)
#include "api.h"

#include <initializer_list>

#include "realm.h"

int main(int argc, char** argv) {
  probe::evidence_install();
  bool isolated = argc > 1 && !strcmp(argv[1], "isolated");
  void* handle = isolated ? probe::realm_load(probe::find_driver(), {})
                          : dlopen(probe::find_driver(), RTLD_NOW);
  if (!handle) {
    stage("\"stage\": \"no driver\"");
    return 3;
  }
  Api api;
  api.bind(handle);
  CUdevice device;
  CUcontext context;
  if (enter_context(api, &device, &context)) return 3;
  stage("\"value\": \"context\", \"is\": \"%p\"", (void*)context);
  CUdeviceptr p;
  for (size_t bytes : {size_t(512), size_t(1) << 20, size_t(64) << 20}) {
    api.cuMemAlloc(&p, bytes);
    stage("\"value\": \"cuMemAlloc %zu\", \"is\": \"0x%llx\"", bytes, p);
  }
  for (int round = 0; round < 3;
       ++round) {  // the same image three times: does the place depend on what came before?
    CUmodule module;
    CUfunction fill, where;
    size_t bytes;
    if (STEP("module", load_module(api, &module, kPtx))) return 4;
    stage("\"value\": \"module %d\", \"is\": \"%p\"", round, (void*)module);
    for (const char* name : {"counter", "table", "fixed"}) {
      p = 0;
      int rc = api.cuModuleGetGlobal(&p, &bytes, module, name);
      stage("\"value\": \"%s %d\", \"is\": \"0x%llx\", \"rc\": %d", name, round, p, rc);
    }
    if (api.cuModuleGetFunction(&fill, module, "fill") ||
        api.cuModuleGetFunction(&where, module, "where"))
      return 5;
    stage("\"value\": \"function handle %d\", \"is\": \"%p\"", round, (void*)fill);
    unsigned long long code = 0;
    CUdeviceptr out;
    api.cuMemAlloc(&out, 8);
    void* arguments[] = {&out};
    int rc = api.cuLaunchKernel(where, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
    if (!rc) rc = api.cuCtxSynchronize();
    if (!rc) rc = api.cuMemcpyDtoH(&code, out, 8);
    stage("\"value\": \"device function %d\", \"is\": \"0x%llx\", \"rc\": %d", round, code, rc);
  }
  CUstream stream;
  api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  stage("\"value\": \"stream\", \"is\": \"%p\"", (void*)stream);
  stage("\"stage\": \"done\"");
}
