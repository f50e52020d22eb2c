// Two streams cross through values in memory; batches do several at once; bad addresses are
// refused.
#include "check.h"

int main() {
  start();
  CUstream a, b;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CUdeviceptr d;
  OK(cuMemAlloc(&d, 4096));
  OK(cuMemsetD8(d, 0, 4096));
  OK(cuCtxSynchronize());
  for (unsigned i = 1; i <= 20; ++i) {
    OK(cuStreamWriteValue32(a, d, i, 0));
    OK(cuStreamWaitValue32(a, d + 4, i, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWaitValue32(b, d, i, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue32(b, d + 4, i, 0));
  }
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  CUstreamBatchMemOpParams p[3];
  memset(p, 0, sizeof p);
  p[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, d + 8, {0}, 0, 0};
  p[0].writeValue.value64 = 0x1122334455667788;
  p[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, d + 8, {0}, CU_STREAM_WAIT_VALUE_AND, 0};
  p[1].waitValue.value64 = 0x8;
  p[2].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, d + 16, {0}, 0, 0};
  p[2].writeValue.value = 5;
  OK(cuStreamBatchMemOp(a, 3, p, 0));
  OK(cuStreamSynchronize(a));
  uint64_t v[3];
  OK(cuMemcpyDtoH(v, d, 24));
  CHECK(v[1] == 0x1122334455667788 && (v[2] & 0xffffffff) == 5);
  static uint32_t pageable;
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuStreamWaitValue32(a, reinterpret_cast<CUdeviceptr>(&pageable), 0, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, d + 2, 0, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, 0x7700000000, 0, 0));
  return ok();
}
