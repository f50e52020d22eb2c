// Host memory that kernels read and write directly: allocated mapped, and ordinary memory
// registered later, partly in use by the CPU between the steps.
#include "subject.h"

constexpr int kCount = 4096;

__global__ void exchange(uint32_t* mapped, uint32_t* registered, uint32_t* device, uint32_t step) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t x = mix(mapped[i] + registered[i] + device[i] + step);
  mapped[i] = x;
  registered[kCount - 1 - i] ^= x;
  device[i] += x;
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  constexpr size_t kBytes = kCount * sizeof(uint32_t);
  uint32_t *mapped, *mapped_device, *registered, *registered_device, *device;
  CHECK(cudaHostAlloc(&mapped, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
  CHECK(cudaHostGetDevicePointer(&mapped_device, mapped, 0));
  registered = static_cast<uint32_t*>(aligned_alloc(4096, kBytes));
  CHECK(cudaHostRegister(registered, kBytes, cudaHostRegisterMapped));
  CHECK(cudaHostGetDevicePointer(&registered_device, registered, 0));
  unsigned flags = 0;
  CHECK(cudaHostGetFlags(&flags, mapped));
  EXPECT(flags & cudaHostAllocMapped);
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMemset(device, 0, kBytes));
  std::vector<uint32_t> m(kCount), r(kCount), d(kCount);
  for (int i = 0; i < kCount; ++i) {
    m[i] = mapped[i] = mix(i);
    r[i] = registered[i] = i;
  }
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    // The threads work on the lower half; what they write in the upper one is not read.
    for (int turn = 0; turn < 2; ++turn) {
      exchange<<<kCount / 2 / 128, 128>>>(mapped_device, registered_device, device, step + turn);
      CHECK(cudaDeviceSynchronize());
      std::vector<uint32_t> before = r;
      for (int i = 0; i < kCount / 2; ++i) {
        uint32_t x = mix(m[i] + before[i] + d[i] + step + turn);
        m[i] = x;
        r[kCount - 1 - i] ^= x;
        d[i] += x;
      }
    }
    for (int i = 0; i < kCount; ++i) {
      EXPECT(mapped[i] == m[i]);
      EXPECT(registered[i] == r[i]);
    }
    digest.add(mapped, kBytes);
    digest.add(registered, kBytes);
    for (int i = 0; i < kCount / 2; ++i) {  // the CPU's turn: the upper half goes down
      uint32_t x = registered[kCount / 2 + i];
      registered[i] += x;
      r[i] += x;
    }
    steps.report(step, digest);
  }
  CHECK(cudaHostUnregister(registered));
  free(registered);
  CHECK(cudaFreeHost(mapped));
  CHECK(cudaFree(device));
  return steps.finish(digest);
}
