// Driver functions asked for by name: the ABI depends on the version, the default stream on the
// flags.
#include <cuda.h>

#include "conformance.h"

int main() {
  cudaDriverEntryPointQueryResult found;
  void* function = nullptr;
  CHECK(cudaGetDriverEntryPointByVersion("cuDeviceGetCount", &function, 12000, cudaEnableDefault,
                                         &found));
  EXPECT(found == cudaDriverEntryPointSuccess && function != nullptr);
  int count = 0, device_count = 0;
  EXPECT(reinterpret_cast<CUresult (*)(int*)>(function)(&count) == CUDA_SUCCESS);
  CHECK(cudaGetDeviceCount(&device_count));
  EXPECT(count == device_count);

  CHECK(cudaFree(nullptr));  // makes the primary context current
  CHECK(
      cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess);
  CUdeviceptr p = 0;
  EXPECT(reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(function)(&p, 4096) == CUDA_SUCCESS);
  CHECK(cudaFree(reinterpret_cast<void*>(p)));  // the two APIs share one context

  void *legacy, *per_thread;
  CHECK(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &legacy, 12000,
                                         cudaEnableLegacyStream, &found));
  CHECK(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &per_thread, 12000,
                                         cudaEnablePerThreadDefaultStream, &found));
  EXPECT(legacy != per_thread);

  function = &function;
  CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, cudaEnableDefault,
                                         &found));
  EXPECT(found == cudaDriverEntryPointSymbolNotFound && function == nullptr);
  CHECK(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &function, 10000, cudaEnableDefault,
                                         &found));
  EXPECT(found == cudaDriverEntryPointVersionNotSufficent);
  return passed();
}
