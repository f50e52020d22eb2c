// cuMemPoolSetAccess also applies to memory that the pool allocated before.
#include <initializer_list>

#include "check.h"

int main() {
  CUcontext first = start(0), second;
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  CUmemoryPool pool;
  OK(cuMemPoolCreate(&pool, &kPoolOnDevice0));
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr before[2], after;  // a small one and one with a block of its own
  OK(cuMemAllocFromPoolAsync(&before[0], 1000, pool, s));
  OK(cuMemAllocFromPoolAsync(&before[1], 5 << 20, pool, s));
  for (CUdeviceptr p : before) OK(cuMemsetD8Async(p, 7, 1000, s));
  OK(cuStreamSynchronize(s));
  CUfunction copy;
  OK(cuCtxSetCurrent(second));
  CUmodule module = load(PTX_HEAD R"(
.visible .entry copy(.param .u64 to, .param .u64 from) {
  .reg .b32 %r; .reg .b64 %d<2>;
  ld.param.u64 %d0, [to]; ld.param.u64 %d1, [from];
  ld.global.u32 %r, [%d1]; st.global.u32 [%d0], %r; ret;
})");
  copy = function(module, "copy");
  CUdeviceptr out;
  OK(cuMemAlloc(&out, 4));
  CUmemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(cuCtxSetCurrent(first));
  OK(cuMemAllocFromPoolAsync(&after, 1000, pool, s));
  OK(cuMemsetD8Async(after, 7, 1000, s));
  OK(cuStreamSynchronize(s));
  OK(cuCtxSetCurrent(second));
  for (CUdeviceptr p : {before[0], before[1], after}) {
    OK(cuMemsetD32(out, 0, 1));
    OK(launch1(copy, 1, 1, nullptr, out, p));
    unsigned got = 0;
    OK(cuMemcpyDtoH(&got, out, 4));
    CHECK(got == 0x07070707);
  }
  // Access to all of it is revoked.
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(launch1(copy, 1, 1, nullptr, out, before[1]));
  CHECK(cuCtxSynchronize() != CUDA_SUCCESS);
  return ok();
}
