// The plainest user of the driver: dlopen by name, cuGetProcAddress, a kernel. For experiments 1
// and 2.
#include "api.h"

int main() {
  probe::evidence_install();
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (!handle) {
    stage("\"stage\": \"no driver\"");
    return 3;
  }
  Api api;
  api.bind(handle);
  CUdevice device;
  CUcontext context;
  if (enter_context(api, &device, &context)) return 3;
  auto get = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(handle, "cuGetProcAddress_v2"));
  CUdriverProcAddressQueryResult found;
  decltype(&cuMemAlloc_v2) by_name = nullptr;
  if (get && STEP("cuGetProcAddress",
                  get("cuMemAlloc", reinterpret_cast<void**>(&by_name), 12000, 0, &found)) == 0)
    stage("\"stage\": \"same entry\", \"value\": %s", by_name == api.cuMemAlloc ? "true" : "false");
  int rc = try_kernel(api);
  const int rounds = 200000;
  double start = now_ms();
  for (int i = 0; i < rounds; ++i) api.cuCtxGetCurrent(&context);
  stage("\"stage\": \"cuCtxGetCurrent\", \"ns\": %.2f", (now_ms() - start) * 1e6 / rounds);
  if (auto report = reinterpret_cast<void (*)()>(dlsym(handle, "probe_report"))) report();
  stage("\"stage\": \"done\"");
  return rc ? 4 : 0;
}
