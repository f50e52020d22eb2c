// A failed assert in a kernel is cudaErrorAssert.
#undef NDEBUG
#include <assert.h>

#include "conformance.h"

__global__ void check(int limit) { assert(threadIdx.x < limit); }

int main() {
  check<<<1, 32>>>(32);
  CHECK(cudaDeviceSynchronize());
  check<<<1, 32>>>(31);
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorAssert);
  EXPECT_ERROR(cudaFree(nullptr) == cudaSuccess ? cudaDeviceSynchronize() : cudaErrorAssert,
               cudaErrorAssert);
  return passed();
}
