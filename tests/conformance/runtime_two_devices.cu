// Two devices: memory and variables of their own, copies between them, a stream belongs to its
// device.
#include <thread>

#include "conformance.h"

__device__ int counter = 10;
__global__ void count(int* out) { *out = ++counter; }

int onDevice(int device) {
  CHECK(cudaSetDevice(device));
  DeviceVector<int> out(1);
  count<<<1, 1>>>(out.get());
  CHECK(cudaGetLastError());
  return out.copy()[0];
}

int main() {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  EXPECT(devices == 2);
  EXPECT(onDevice(0) == 11);
  EXPECT(onDevice(0) == 12);
  EXPECT(onDevice(1) == 11);  // another device, another variable
  std::thread([] { EXPECT(onDevice(1) == 12); }).join();

  int *a, *b, can = 0;
  CHECK(cudaSetDevice(0));
  CHECK(cudaMalloc(&a, 1024));
  CHECK(cudaMemset(a, 0x5a, 1024));
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&b, 1024));
  CHECK(cudaMemcpyPeer(b, 1, a, 0, 1024));
  int host[256];
  CHECK(cudaMemcpy(host, b, sizeof(host), cudaMemcpyDeviceToHost));
  EXPECT(host[0] == 0x5a5a5a5a && host[255] == 0x5a5a5a5a);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, a));
  EXPECT(attributes.device == 0);
  CHECK(cudaPointerGetAttributes(&attributes, b));
  EXPECT(attributes.device == 1);
  if (can) {
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    EXPECT_ERROR(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    count<<<1, 1>>>(a);  // device 1 writes into device 0
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, a, sizeof(int), cudaMemcpyDefault));
    EXPECT(host[0] == 13);
  }
  CHECK(cudaDeviceReset());
  EXPECT(onDevice(1) == 11);
  EXPECT(onDevice(0) == 13);  // the other device was not reset
  return passed();
}
