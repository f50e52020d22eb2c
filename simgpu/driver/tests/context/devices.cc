// SIMGPU_DEVICES=3: devices with their own memory, peers, and copies between them.
#include "check.h"

int main() {
  OK(cuInit(0));
  int n, can;
  OK(cuDeviceGetCount(&n));
  CHECK(n == 3);
  CUuuid u[2];
  OK(cuDeviceGetUuid(&u[0], 0));
  OK(cuDeviceGetUuid(&u[1], 1));
  CHECK(memcmp(&u[0], &u[1], sizeof u[0]) != 0);
  char id[32];
  CUdevice d;
  OK(cuDeviceGetPCIBusId(id, sizeof id, 2));
  OK(cuDeviceGetByPCIBusId(&d, id));
  CHECK(d == 2);
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 1);
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; ++i)
    OK(cuDeviceGetAttribute(&can, static_cast<CUdevice_attribute>(i), 0));
  CUcontext c1 = start(1), c0 = start(0);
  CUdeviceptr a, b;
  OK(cuMemAlloc(&a, 64));
  OK(cuMemsetD8(a, 9, 64));
  OK(cuCtxPushCurrent(c1));
  OK(cuMemAlloc(&b, 64));
  size_t left, total;
  OK(cuMemcpyPeer(b, c1, a, c0, 64));
  unsigned char v = 0;
  OK(cuMemcpyDtoH(&v, b, 1));
  CHECK(v == 9);
  OK(cuCtxEnablePeerAccess(c0, 0));
  EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(c0, 0));
  OK(cuCtxDisablePeerAccess(c0));
  EXPECT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(c0));
  OK(cuMemGetInfo(&left, &total));
  int ordinal;
  OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
  CHECK(ordinal == 0);
  CUcontext popped;
  OK(cuCtxPopCurrent(&popped));
  CHECK(popped == c1);
  OK(cuCtxGetDevice(&d));
  CHECK(d == 0);
  return ok();
}
