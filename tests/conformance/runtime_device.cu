// Device queries agree with each other; each thread has its own current device.
#include <thread>

#include "conformance.h"

int main() {
  int count = 0, device = -1, version = 0;
  CHECK(cudaGetDeviceCount(&count));
  EXPECT(count >= 1);
  CHECK(cudaGetDevice(&device));
  EXPECT(device == 0);
  CHECK(cudaRuntimeGetVersion(&version));
  EXPECT(version >= 13000);
  CHECK(cudaDriverGetVersion(&version));
  EXPECT(version >= 13000);

  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0));
  EXPECT(strlen(p.name) > 0 && p.warpSize == 32 && p.maxThreadsPerBlock == 1024);
  EXPECT(p.major * 10 + p.minor >= 75);
  EXPECT(p.multiProcessorCount > 0 && p.unifiedAddressing == 1 && p.managedMemory == 1);
  EXPECT(p.sharedMemPerBlock == 48 * 1024 && p.sharedMemPerBlockOptin >= p.sharedMemPerBlock);
  EXPECT(p.maxGridSize[1] == 65535 && p.maxThreadsDim[2] == 64);
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  EXPECT(value == p.multiProcessorCount);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT(value == p.major);
  EXPECT_ERROR(cudaGetDeviceProperties(&p, count), cudaErrorInvalidDevice);
  EXPECT_ERROR(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1), cudaErrorInvalidDevice);

  char bus[32];
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
  CHECK(cudaDeviceGetByPCIBusId(&device, bus));
  EXPECT(device == 0);

  size_t free_bytes, total, after;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  EXPECT(free_bytes > 0 && free_bytes <= total && total <= p.totalGlobalMem);
  void* block;
  CHECK(cudaMalloc(&block, 64 << 20));
  CHECK(cudaMemGetInfo(&after, &total));
  EXPECT(after + (64 << 20) <= free_bytes);
  CHECK(cudaFree(block));

  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
  CHECK(cudaDeviceGetLimit(&total, cudaLimitStackSize));
  EXPECT(total == 8192);
  int least, greatest;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(least >= greatest);
  unsigned flags;
  CHECK(cudaGetDeviceFlags(&flags));

  // Functions that listen, until they are taken back.
  cudaAsyncCallbackHandle_t notification;
  cudaLogsCallbackHandle log;
  CHECK(cudaDeviceRegisterAsyncNotification(
      0, [](cudaAsyncNotificationInfo_t*, void*, cudaAsyncCallbackHandle_t) {}, nullptr,
      &notification));
  CHECK(cudaDeviceUnregisterAsyncNotification(0, notification));
  EXPECT(cudaDeviceUnregisterAsyncNotification(0, notification) != cudaSuccess);
  CHECK(cudaLogsRegisterCallback([](void*, cudaLogLevel, char*, size_t) {}, nullptr, &log));
  CHECK(cudaLogsUnregisterCallback(log));
  EXPECT(cudaLogsUnregisterCallback(log) != cudaSuccess);
  cudaGetLastError();

  CHECK(cudaSetDevice(count - 1));
  std::thread([] {
    int mine = -1;
    CHECK(cudaGetDevice(&mine));
    EXPECT(mine == 0);
  }).join();
  CHECK(cudaGetDevice(&device));
  EXPECT(device == count - 1);
  return passed();
}
