// Without a driver the runtime loads, and says what is missing.
#include <dlfcn.h>

#include "conformance.h"

__global__ void nothing() {}

int main() {
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY)) {  // a machine with a GPU: nothing to see
    dlclose(driver);
    return passed();
  }
  int count = 7, version = 7;
  EXPECT_ERROR(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT(count == 0);
  CHECK(cudaDriverGetVersion(&version));
  EXPECT(version == 0);
  CHECK(cudaRuntimeGetVersion(&version));
  EXPECT(version == 13000);
  (void)cudaGetLastError();
  nothing<<<1, 1>>>();
  EXPECT(cudaGetLastError() == cudaErrorInsufficientDriver);
  void* p;
  EXPECT_ERROR(cudaMalloc(&p, 1), cudaErrorInsufficientDriver);
  return passed();
}
