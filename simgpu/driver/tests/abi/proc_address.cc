// cuGetProcAddress gives the ABI of the version and flag asked for; private tables are refused.
#include <dlfcn.h>

#include "check.h"

static void* get(const char* name, int version, cuuint64_t flags = 0) {
  void* p = nullptr;
  CUdriverProcAddressQueryResult st;
  OK(cuGetProcAddress(name, &p, version, flags, &st));
  CHECK((p != nullptr) == (st == CU_GET_PROC_ADDRESS_SUCCESS));
  return p;
}

int main() {
  void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(self != nullptr);
  auto is = [&](void* p, const char* symbol) { return p && p == dlsym(self, symbol); };
  CHECK(is(get("cuMemAlloc", 3020), "cuMemAlloc_v2") && is(get("cuMemAlloc", 2000), "cuMemAlloc"));
  CHECK(is(get("cuMemAlloc", 13000), "cuMemAlloc_v2"));
  CHECK(is(get("cuCtxCreate", 13000), "cuCtxCreate_v4") &&
        is(get("cuCtxCreate", 3020), "cuCtxCreate_v2"));
  CHECK(is(get("cuGetProcAddress", 12000), "cuGetProcAddress_v2"));
  CHECK(is(get("cuGetProcAddress", 11030), "cuGetProcAddress"));
  CHECK(is(get("cuMemcpyAsync", 7000, 2), "cuMemcpyAsync_ptsz") &&
        is(get("cuMemcpyAsync", 7000, 1), "cuMemcpyAsync"));
  CHECK(is(get("cuMemcpyHtoD", 7000, 2), "cuMemcpyHtoD_v2_ptds"));
  CHECK(is(get("cuInit", 13000, 2), "cuInit"));  // no variant of its own
  CHECK(is(get("cuProfilerStart", 13000), "cuProfilerStart"));
  CHECK(get("cuMemcpyAsync", 4000, 2) == nullptr);
  CHECK(!get("cuMemAlloc_v2", 13000) && !get("", 0) && !get("cuNoSuch", 13000));
  void* p = &p;
  EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuch", &p, 13000, 0, nullptr));
  CHECK(p == nullptr);
  CUuuid id;
  memset(&id, 0x11, sizeof id);
  const void* table = &p;
  EXPECT(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
  CHECK(table == nullptr);
  // Not there: refused, never a silent success.
  OK(cuInit(0));
  CUmemGenericAllocationHandle multicast;
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&multicast, nullptr));
  return ok();
}
