// Work of a stream waits for its own stream only; the calling thread waits for nothing until it
// asks.
#include "check.h"

int main() {
  start();
  CUstream held, free_one;
  OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  memset(flag, 0, 4096);
  auto at = reinterpret_cast<CUdeviceptr>(flag);
  CUdeviceptr d;
  OK(cuMemAlloc(&d, 1 << 20));
  OK(cuMemsetD32(d, 1, 16));
  OK(cuCtxSynchronize());

  OK(cuStreamWaitValue32(held, at, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32Async(d, 7, 16, held));
  OK(cuMemsetD32Async(d + 64, 8, 16, free_one));
  OK(cuStreamSynchronize(free_one));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
  CUevent e;
  OK(cuEventCreate(&e, 0));
  OK(cuEventRecord(e, held));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
  // A wait on the event holds the other stream, too.
  OK(cuStreamWaitEvent(free_one, e, 0));
  OK(cuStreamWriteValue32(free_one, at + 64, 9, 0));
  rest(0.05);
  CHECK(flag[16] == 0);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(free_one));
  uint32_t seen;
  OK(cuMemcpyDtoHAsync(&seen, d, 4,
                       nullptr));  // the legacy stream does not wait for non-blocking ones
  CHECK(seen == 1);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(free_one));
  CHECK(flag[16] == 9);
  OK(cuEventQuery(e));
  OK(cuMemcpyDtoH(&seen, d, 4));
  CHECK(seen == 7);
  return ok();
}
