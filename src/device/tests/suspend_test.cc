// Suspended, a program holds no device memory; calls wait; resumed, everything is where it was.
// When another process took the memory meanwhile it stays suspended and can try again.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "device/tests/check.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/real_driver.h"
#include "intercept/spec/cuda_types.h"
#include "snapshot/api/device_plugin.h"

namespace {

gpuckpt::DeviceReport report;

template <typename F>
bool on_thread(F work) {
  bool ok = false;
  std::thread([&] { ok = work(); }).join();
  return ok;
}
bool suspend(bool release = false) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t deadline = static_cast<uint64_t>(t.tv_sec) * 1000 + 5000;
  report = {};
  return on_thread(
      [&] { return gpuckpt::device_plugin->suspend(200, deadline, release, &report); });
}
bool wake(const char* gpu_map = "") {
  report = {};
  return on_thread([&] { return gpuckpt::device_plugin->wake(gpu_map, &report); });
}

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .entry count(.param .u64 p) {
  .reg .u32 %r<2>; .reg .u64 %d<2>;
  ld.param.u64 %d1, [p];
  ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, 1; st.global.u32 [counter], %r1;
  st.global.u32 [%d1], %r1; ret;
}
)";

// What the simulated driver tells only to its own tests.
struct OwnTable {
  size_t bytes;
  CUcontext (*current)();
  int (*is_context)(CUcontext);
  uint64_t (*used)(CUdevice);
};
uint64_t used_on(CUdevice device) {
  CUuuid id;
  memcpy(id.bytes, "simgpu own table", sizeof id.bytes);
  const void* table = nullptr;
  OK(gpuckpt::real().cuGetExportTable(&table, &id));
  return static_cast<const OwnTable*>(table)->used(device);
}

// The driver keeps its contexts, and there is no memory for the way back: the process is suspended,
// and can be woken later.
void fails_both_ways() {
  auto& driver = const_cast<gpuckpt::RealDriver&>(gpuckpt::real());
  auto checkpoint = driver.cuCheckpointProcessCheckpoint;
  auto create = driver.cuMemCreate;
  driver.cuCheckpointProcessCheckpoint = [](int, CUcheckpointCheckpointArgs*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  };
  CHECK(!suspend(true) && !report.stays_suspended && !gpuckpt::gate_closed());
  driver.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                          unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  CHECK(!suspend(true) && report.stays_suspended && gpuckpt::gate_closed());
  CHECK(!wake() && gpuckpt::gate_closed());
  driver.cuMemCreate = create;
  driver.cuCheckpointProcessCheckpoint = checkpoint;
  CHECK(wake() && !gpuckpt::gate_closed());
}

// Contexts and all that lives in them, given back, too: everything is as it was, on another GPU.
void release_all() {
  CUcontext first, second, popped;
  OK(cuCtxGetCurrent(&first));
  OK(cuCtxCreate_v2(&second, 0, 1));
  CUmodule module;
  CUfunction count;
  CUstream stream;
  CUevent event;
  CUdeviceptr out, counter, range;
  size_t size;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&count, module, "count"));
  OK(cuModuleGetGlobal_v2(&counter, &size, module, "counter"));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuMemAlloc_v2(&out, 4));
  constexpr size_t kPage = 2 << 20;
  CUmemAllocationProp property = {};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  CUmemGenericAllocationHandle own;
  CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemCreate(&own, kPage, &property, 0));
  OK(cuMemAddressReserve(&range, kPage, 0, 0, 0));
  OK(cuMemMap(range, kPage, 0, own, 0));
  OK(cuMemSetAccess(range, kPage, &access, 1));
  OK(cuMemsetD32_v2(range, 99, kPage / 4));
  CUuuid uuid[2], now;
  for (int i = 0; i < 2; ++i) OK(cuDeviceGetUuid_v2(&uuid[i], i));

  uint32_t times = 5;
  for (const char* map : {"", "0=1,1=0", ""}) {
    CHECK(used_on(0) && used_on(1));
    CHECK(suspend());
    const uint64_t arena = report.device_bytes;
    CHECK(wake());
    CHECK(suspend(true));
    CHECK(report.device_bytes == arena + kPage);
    CHECK(used_on(0) == 0 && used_on(1) == 0);
    CHECK(!wake("0=1") && report.code == gpuckpt::kExitIncompatible && gpuckpt::gate_closed());
    CHECK(wake(map));
    void* arguments[] = {&out};
    OK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
    uint32_t value[3];
    OK(cuMemcpyDtoH_v2(&value[0], out, 4));
    OK(cuMemcpyDtoH_v2(&value[1], counter, 4));
    OK(cuMemcpyDtoH_v2(&value[2], range + kPage - 4, 4));
    ++times;
    CHECK(value[0] == times && value[1] == times && value[2] == 99);
  }
  OK(cuDeviceGetUuid_v2(&now, 0));
  CHECK(memcmp(&now, &uuid[1], sizeof now) == 0);
  CHECK(suspend());  // without, the contexts stay where they are
  CHECK(!wake("0=1,1=0") && report.code == gpuckpt::kExitRefused);
  CHECK(wake());
  fails_both_ways();
  OK(cuMemUnmap(range, kPage));
  OK(cuMemRelease(own));
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == second);
  OK(cuCtxDestroy_v2(second));
}

}  // namespace

int main() {
  alarm(50);
  constexpr size_t kBytes = 200 << 20;
  CUdevice device;
  CUcontext context;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  CUdeviceptr big, small;
  OK(cuMemAlloc_v2(&big, kBytes));
  OK(cuMemAlloc_v2(&small, 100));
  OK(cuMemsetD8_v2(big, 5, kBytes));
  OK(cuMemsetD8_v2(small, 6, 100));
  size_t before, during, after, total;
  OK(gpuckpt::real().cuMemGetInfo_v2(&before, &total));
  CHECK(suspend());
  CHECK(report.device_bytes >= kBytes);
  CHECK(gpuckpt::gate_closed());
  OK(gpuckpt::real().cuMemGetInfo_v2(&during, &total));
  CHECK(during >= before + kBytes);
  std::atomic<bool> came{false};
  std::thread caller([&] {
    OK(cuCtxSetCurrent(context));
    OK(cuMemsetD8_v2(small, 7, 10));
    OK(cuCtxSynchronize());
    came = true;
  });
  usleep(50000);
  CHECK(!came);
  CUdeviceptr thief;  // another program
  OK(gpuckpt::real().cuMemAlloc_v2(&thief, during - (50 << 20)));
  CHECK(!wake());
  CHECK(report.code == gpuckpt::kExitError && gpuckpt::gate_closed());
  OK(gpuckpt::real().cuMemFree_v2(thief));
  OK(gpuckpt::real().cuMemGetInfo_v2(&after, &total));
  CHECK(after == during);
  CHECK(wake());
  caller.join();
  CHECK(came);
  std::vector<unsigned char> host(kBytes);
  OK(cuMemcpyDtoH_v2(host.data(), big, kBytes));
  for (size_t i = 0; i < kBytes; i += 997) CHECK(host[i] == 5);
  OK(cuMemcpyDtoH_v2(host.data(), small, 100));
  CHECK(host[0] == 7 && host[9] == 7 && host[10] == 6 && host[99] == 6);
  OK(cuMemFree_v2(big));
  CHECK(suspend() && wake());
  OK(cuMemFree_v2(small));
  release_all();
  puts("PASS");
  fflush(stdout);
  _exit(0);
}
