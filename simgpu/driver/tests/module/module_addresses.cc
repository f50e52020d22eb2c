// Addresses of globals are a function of the seed, the region's base and the history of loads:
// printed relative to the region, for module_addresses.sh; and two contexts have the same places.
#include <sys/mman.h>

#include "kernels.h"

static CUdeviceptr counter_of(CUmodule m) {
  CUdeviceptr d;
  OK(cuModuleGetGlobal(&d, nullptr, m, "counter"));
  return d;
}

int main() {
  CUcontext first = start(), second;
  CUlibrary l;
  OK(cuLibraryLoadData(&l, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUmodule a = load(kKernels), b = load(kKernels), c;
  CUdeviceptr pa = counter_of(a), pb = counter_of(b), pl, ql;
  CHECK(pa != pb);
  OK(cuModuleUnload(a));
  c = load(kKernels);
  a = load(kKernels);
  OK(cuLibraryGetGlobal(&pl, nullptr, l, "counter"));
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  OK(cuLibraryGetGlobal(&ql, nullptr, l, "counter"));
  OK(cuCtxPopCurrent(&second));
  CHECK(pl != ql && ((pl - ql) & 4095) == 0);
  (void)first;
  printf("%lld %lld %lld %lld\n", static_cast<long long>(pb - pa),
         static_cast<long long>(counter_of(c) - pa), static_cast<long long>(counter_of(a) - pa),
         static_cast<long long>(pl - pa));
  return 0;
}
