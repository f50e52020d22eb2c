// The driver's own checkpoint of a process: locked, everybody else waits; checkpointed, its memory
// is free; what is out of order is an error.
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
  OK(cuCheckpointProcessRestore(me, nullptr));
  usleep(20000);
  CHECK(!through);
  OK(cuCheckpointProcessUnlock(me, nullptr));
  waits.join();
  CHECK(through && value == 42);
  OK(cuCheckpointProcessGetState(me, &state));
  CHECK(state == CU_PROCESS_STATE_RUNNING);
  return ok();
}
