// The driver's own checkpoint of a process: while locked, calls of other threads wait; while
// checkpointed, its memory is free; a call out of order is an error.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "check.h"

int main() {
  OK(cuInit(0));
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 64 << 20));
  OK(cuMemsetD32_v2(memory, 42, 1 << 20));
  const int me = getpid();
  CUuuid self, other, here;
  OK(cuDeviceGetUuid_v2(&self, 0));
  OK(cuDeviceGetUuid_v2(&other, 1));
  CUprocessState state;
  OK(cuCheckpointProcessGetState(me, &state));
  CHECK(state == CU_PROCESS_STATE_RUNNING);
  CHECK(cuCheckpointProcessUnlock(me, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuCheckpointProcessCheckpoint(me, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  OK(cuCheckpointProcessLock(me, nullptr));
  CHECK(cuCheckpointProcessLock(me, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  std::atomic<bool> through{false};
  uint32_t value = 0;
  std::thread waits([&] {
    OK(cuCtxSetCurrent(context));
    OK(cuMemcpyDtoH_v2(&value, memory, 4));
    through = true;
  });
  OK(cuCheckpointProcessCheckpoint(me, nullptr));
  OK(cuCheckpointProcessGetState(me, &state));
  CHECK(state == CU_PROCESS_STATE_CHECKPOINTED);
  CHECK(cuCheckpointProcessUnlock(me, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  // The pairs must name every device, and give each a GPU of its own.
  CUcheckpointGpuPair pairs[2];

  CUcheckpointRestoreArgs args = {};
  args.gpuPairs = pairs;
  args.gpuPairsCount = 1;
  pairs[0] = {self, other};
  CHECK(cuCheckpointProcessRestore(me, &args) == CUDA_ERROR_INVALID_VALUE);
  args.gpuPairsCount = 2;
  pairs[1] = {other, other};
  CHECK(cuCheckpointProcessRestore(me, &args) == CUDA_ERROR_INVALID_VALUE);
  pairs[1] = {other, self};
  OK(cuCheckpointProcessRestore(me, &args));
  usleep(20000);
  CHECK(!through);
  OK(cuCheckpointProcessUnlock(me, nullptr));
  waits.join();
  CHECK(through && value == 42);
  OK(cuDeviceGetUuid_v2(&here, 0));
  CHECK(memcmp(&here, &other, sizeof here) == 0);
  OK(cuCheckpointProcessGetState(me, &state));
  CHECK(state == CU_PROCESS_STATE_RUNNING);
  return ok();
}
