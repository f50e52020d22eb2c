// Suspended, a program holds no device memory; calls wait; resumed, everything is where it was.
// When somebody took the memory meanwhile it stays suspended and can try again.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/tests/check.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/cuda_types.h"
#include "intercept/gate.h"
#include "intercept/generated/real_driver.h"
#include "snapshot/device_plugin.h"

namespace {

gpuckpt::DeviceReport report;

template <typename F>
bool on_thread(F work) {
  bool ok = false;
  std::thread([&] { ok = work(); }).join();
  return ok;
}
bool suspend() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t deadline = static_cast<uint64_t>(t.tv_sec) * 1000 + 5000;
  report = {};
  return on_thread([&] { return gpuckpt::device_plugin->suspend(200, deadline, &report); });
}
bool wake() {
  return on_thread([&] { return gpuckpt::device_plugin->wake(&report); });
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
  puts("PASS");
  fflush(stdout);
  _exit(0);
}
