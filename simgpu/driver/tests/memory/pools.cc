// Stream-ordered allocation: memory is freed when the stream gets there; the pool's figures follow.
#include "check.h"

int main() {
  start();
  CUmemoryPool pool, standard, now;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceGetMemPool(&now, 0));
  CHECK(now == standard);
  OK(cuMemPoolCreate(&pool, &kPoolOnDevice0));
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  *flag = 0;
  CUdeviceptr a, b;
  OK(cuMemAllocAsync(&a, 5 << 20, s));
  OK(cuMemAllocFromPoolAsync(&b, 1000, pool, s));
  cuuint64_t used;
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  CHECK(used == 1000);
  CUmemoryPool of;
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, b + 10));
  CHECK(of == pool);
  OK(cuMemsetD8Async(a, 3, 5 << 20, s));
  OK(cuStreamWaitValue32(s, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemFreeAsync(b, s));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(b, s));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  CHECK(used == 1000);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(s));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  CHECK(used == 0);
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
  CHECK(used == 1000);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(b, flag, 4));
  unsigned char v;
  OK(cuMemcpyDtoH(&v, a + 12345, 1));
  CHECK(v == 3);
  OK(cuMemFree(a));
  OK(cuDeviceSetMemPool(0, pool));
  OK(cuMemAllocAsync(&a, 10, s));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  CHECK(used == 10);
  OK(cuMemPoolDestroy(pool));
  OK(cuDeviceGetMemPool(&now, 0));
  CHECK(now == standard);
  EXPECT(CUDA_ERROR_INVALID_HANDLE,
         cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  OK(cuMemFreeAsync(a, s));
  OK(cuStreamSynchronize(s));
  return ok();
}
