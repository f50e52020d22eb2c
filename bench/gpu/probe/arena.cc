// Experiment 3: is the address hint of a large reservation taken, in a process with address
// randomisation? usage: arena BASE...   One process tries every base; the runner starts many.
#include "api.h"
#include "realm.h"

int main(int argc, char** argv) {
  probe::evidence_install();
  Api api;
  void* handle = dlopen(probe::find_driver(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    stage("\"stage\": \"no driver\"");
    return 3;
  }
  api.bind(handle);
  CUdevice device;
  CUcontext context;
  size_t total = 0, granularity = 2 << 20;
  if (enter_context(api, &device, &context)) return 3;
  api.cuDeviceTotalMem(&total, device);
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  api.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  size_t want = (total + total / 2 + (1ull << 30) - 1) >> 30 << 30;
  CUdeviceptr natural = 0, small = 0;
  api.cuMemAlloc(&small, 1 << 20);
  int rc = api.cuMemAddressReserve(&natural, want, 0, 0, 0);
  stage(
      "\"stage\": \"natural\", \"rc\": %d, \"alloc\": \"0x%llx\", \"reserve\": \"0x%llx\", "
      "\"bytes\": %zu, "
      "\"granularity\": %zu, \"context\": \"%p\"",
      rc, small, natural, want, granularity, (void*)context);
  if (rc == 0) api.cuMemAddressFree(natural, want);
  bool filled = false;
  for (int i = 1; i < argc; ++i) {
    CUdeviceptr base = strtoull(argv[i], nullptr, 0), got = 0;
    double start = now_ms();
    rc = api.cuMemAddressReserve(&got, want, 0, base, 0);
    stage(
        "\"stage\": \"hint\", \"base\": \"0x%llx\", \"got\": \"0x%llx\", \"rc\": %d, \"taken\": "
        "%s, \"ms\": %.3f",
        base, got, rc, rc == 0 && got == base ? "true" : "false", now_ms() - start);
    if (rc == 0 && got == base && !filled) {  // and the memory there is usable, at its far end too
      filled = true;
      CUmemGenericAllocationHandle memory;
      CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      size_t bytes = (64ull << 20) / granularity * granularity;
      CUdeviceptr end = base + want - bytes;
      double t0 = now_ms();
      int create = api.cuMemCreate(&memory, bytes, &prop, 0);
      double t1 = now_ms();
      int map = api.cuMemMap(end, bytes, 0, memory, 0);
      int allow = api.cuMemSetAccess(end, bytes, &access, 1);
      double t2 = now_ms();
      unsigned char byte = 0;
      int set = api.cuMemsetD8(end, 0x5a, bytes), get = api.cuMemcpyDtoH(&byte, end + bytes - 1, 1);
      stage(
          "\"stage\": \"use\", \"base\": \"0x%llx\", \"create\": %d, \"map\": %d, \"access\": %d, "
          "\"set\": %d, \"get\": %d, "
          "\"right\": %s, \"create_ms\": %.3f, \"map_ms\": %.3f",
          base, create, map, allow, set, get, byte == 0x5a ? "true" : "false", t1 - t0, t2 - t1);
      api.cuMemUnmap(end, bytes);
      api.cuMemRelease(memory);
    }
    if (rc == 0) api.cuMemAddressFree(got, want);
  }
  stage("\"stage\": \"done\"");
}
