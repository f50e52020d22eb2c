// The legacy stream waits for blocking streams and they for it; per-thread streams are blocking
// ones.
#include "check.h"

extern "C" CUresult cuStreamWriteValue32_v2_ptsz(CUstream, CUdeviceptr, cuuint32_t, unsigned);
extern "C" CUresult cuStreamGetId_ptsz(CUstream, unsigned long long*);

int main() {
  start();
  CUstream a, b;
  OK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&b, CU_STREAM_DEFAULT));
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  memset(flag, 0, 4096);
  auto at = reinterpret_cast<CUdeviceptr>(flag);
  OK(cuStreamWaitValue32(a, at, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuStreamWriteValue32(nullptr, at + 64, 1, 0));           // after a's
  OK(cuStreamWriteValue32(b, at + 128, 1, 0));                // after the legacy stream's
  OK(cuStreamWriteValue32_v2_ptsz(nullptr, at + 192, 1, 0));  // the thread's own: after it, too
  rest(0.05);
  CHECK(flag[16] == 0 && flag[32] == 0 && flag[48] == 0);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  unsigned long long legacy, own, named;
  OK(cuStreamGetId(nullptr, &legacy));
  OK(cuStreamGetId_ptsz(nullptr, &own));
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &named));
  CHECK(own == named && own != legacy);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(b));
  CHECK(flag[32] == 1 && flag[16] == 1);
  OK(cuCtxSynchronize());
  CHECK(flag[48] == 1);
  return ok();
}
