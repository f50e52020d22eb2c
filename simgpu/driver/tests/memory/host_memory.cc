// Pinned, registered and managed memory, and what the driver says about any pointer.
#include <sys/mman.h>

#include "check.h"

int main() {
  CUcontext c = start();
  unsigned char* pinned;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 5000, CU_MEMHOSTALLOC_PORTABLE));
  auto* mapped = static_cast<unsigned char*>(
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  OK(cuMemHostRegister(mapped + 4096, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(mapped, 8192, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuMemHostRegister(reinterpret_cast<void*>(0x5550000000), 8192, 0));
  CUdeviceptr p, m;
  OK(cuMemHostGetDevicePointer(&p, mapped + 4196, 0));
  CHECK(p == reinterpret_cast<CUdeviceptr>(mapped + 4196));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&p, mapped, 0));
  unsigned flags;
  OK(cuMemHostGetFlags(&flags, pinned));
  CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
  OK(cuMemAllocManaged(&m, 10000, CU_MEM_ATTACH_GLOBAL));
  memset(reinterpret_cast<void*>(m), 5, 10000);
  OK(cuMemcpyDtoH(pinned, m + 100, 10));
  CHECK(pinned[9] == 5);
  OK(cuMemsetD8(m, 6, 10));
  CHECK(*reinterpret_cast<unsigned char*>(m) == 6);

  auto type = [](const void* at) {
    unsigned t = 0;
    return cuPointerGetAttribute(&t, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 reinterpret_cast<CUdeviceptr>(at)) == CUDA_SUCCESS
               ? static_cast<int>(t)
               : -1;
  };
  CHECK(type(pinned) == CU_MEMORYTYPE_HOST && type(mapped + 5000) == CU_MEMORYTYPE_HOST);
  CHECK(type(mapped) == -1 && type(reinterpret_cast<void*>(m)) == CU_MEMORYTYPE_DEVICE);
  CUdeviceptr d;
  OK(cuMemAlloc(&d, 777));
  CHECK(type(reinterpret_cast<void*>(d)) == CU_MEMORYTYPE_DEVICE);
  CUcontext of;
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, d));
  CHECK(of == c);
  CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                               CU_POINTER_ATTRIBUTE_IS_MANAGED,
                               CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  unsigned t;
  size_t size;
  int managed, ordinal;
  void* out[] = {&t, &size, &managed, &ordinal};
  OK(cuPointerGetAttributes(4, ids, out, d + 5));
  CHECK(t == CU_MEMORYTYPE_DEVICE && size == 777 && managed == 0 && ordinal == 0);
  OK(cuPointerGetAttributes(4, ids, out, reinterpret_cast<CUdeviceptr>(&t)));
  CHECK(t == 0 && size == 0 && ordinal == -2);
  OK(cuMemHostUnregister(mapped + 4096));
  EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(mapped + 4096));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree(m));
  return ok();
}
