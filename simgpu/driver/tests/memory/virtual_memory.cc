// Reserve, create, map, access, unmap, release; hints; export as a descriptor; device memory out of
// the host's reach.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

static sigjmp_buf back;
static void fault(int) { siglongjmp(back, 1); }

int main() {
  start();
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t g;
  OK(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK(g == 2 << 20);
  const CUdeviceptr hint = 0x100000000000;
  CUdeviceptr va, second;
  OK(cuMemAddressReserve(&va, 1ull << 40, 0, hint, 0));
  CHECK(va == hint || getenv("SIMGPU_IGNORE_HINTS"));
  OK(cuMemAddressReserve(&second, 4 * g, 0, va, 0));  // taken: moved
  CHECK(second != va && second % g == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&second, g + 1, 0, 0, 0));

  size_t before, after, total;
  OK(cuMemGetInfo(&before, &total));
  CUmemGenericAllocationHandle x, y;
  OK(cuMemCreate(&x, 2 * g, &prop, 0));
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  OK(cuMemCreate(&y, g, &prop, 0));
  OK(cuMemGetInfo(&after, &total));
  CHECK(before - after == 3 * g);
  OK(cuMemMap(va, 2 * g, 0, x, 0));
  OK(cuMemMap(va + 2 * g, g, 0, y, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(va + g, g, 0, y, 0));
  static unsigned char h[64], k[64];
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, (cuMemcpyHtoD(va, h, 64)));  // mapped without access
  OK(cuDevicePrimaryCtxReset(0));
  start();
  CUmemAccessDesc rw = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(va, 3 * g, &rw, 1));
  for (int i = 0; i < 64; ++i) h[i] = static_cast<unsigned char>(i + 1);
  OK(cuMemcpyHtoD(va + 2 * g - 32, h, 64));  // across two mappings
  OK(cuMemcpyDtoH(k, va + 2 * g - 32, 64));
  CHECK(memcmp(h, k, 64) == 0);

  // The same memory a second time, by its descriptor.
  int fd;
  OK(cuMemExportToShareableHandle(&fd, y, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle z;
  OK(cuMemImportFromShareableHandle(&z, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  OK(cuMemGetInfo(&after, &total));
  CHECK(before - after == 3 * g);  // the same memory, not more
  OK(cuMemMap(second, g, 0, z, 0));
  OK(cuMemSetAccess(second, g, &rw, 1));
  OK(cuMemcpyDtoH(k, second, 32));
  CHECK(memcmp(h + 32, k, 32) == 0);

  signal(SIGSEGV, fault);
  volatile bool reached = false;
  if (sigsetjmp(back, 1) == 0) {
    *reinterpret_cast<volatile int*>(va) = 1;
    reached = true;
  }
  CHECK(!reached);

  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(va, 1ull << 40));
  OK(cuMemRelease(x));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(x));
  OK(cuMemcpyDtoH(k, va, 64));  // mappings keep it
  OK(cuMemUnmap(va, 3 * g));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(k, va, 64));
  OK(cuMemRelease(y));
  OK(cuMemUnmap(second, g));
  OK(cuMemRelease(z));
  OK(cuMemAddressFree(va, 1ull << 40));
  OK(cuMemAddressFree(second, 4 * g));
  OK(cuMemGetInfo(&after, &total));
  CHECK(before == after);
  return ok();
}
