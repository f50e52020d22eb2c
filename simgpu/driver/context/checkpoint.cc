// The driver's own checkpoint of a process, here of the calling process only. States: running,
// locked (every other call waits), checkpointed (its memory counts as free). A restore may use
// other GPUs.
#include "driver/context/checkpoint.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver/base/state.h"
#include "driver/context/context.h"
#include "driver/context/device.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

Mutex mutex;
Cond changed;
std::atomic<int> now{CU_PROCESS_STATE_RUNNING};
uint64_t released[8];

CUresult own(int pid) { return pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED; }

bool all_idle() {
  State* s = state();
  std::vector<Ref<Context>> contexts;
  {
    Lock lock(s->live_mutex);
    for (Context* c : s->live) contexts.push_back(Ref<Context>(c));
  }
  for (Ref<Context>& c : contexts) {
    Lock lock(c->order);
    for (Stream* st : c->streams)
      if (!st->last().reached()) return false;
  }
  return true;
}

// Charges the memory that every device held, or nothing.
CUresult charge_again() {
  for (Device* d : state()->devices) {
    if (d->charge(released[d->ordinal])) continue;
    for (Device* before : state()->devices)
      if (before->ordinal < d->ordinal) before->discharge(released[before->ordinal]);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

// Which GPU each device will be on; -1 where the pairs do not name it, or name it twice.
CUresult gpus_after(const CUcheckpointRestoreArgs* args, std::vector<int>* now,
                    std::vector<int>* next) {
  State* s = state();
  for (Device* d : s->devices) {
    int to = -1;
    now->push_back(gpu_of(d->uuid, s->options));
    for (unsigned i = 0; i < args->gpuPairsCount; ++i)
      if (memcmp(args->gpuPairs[i].oldUuid.bytes, d->uuid.bytes, sizeof d->uuid.bytes) == 0)
        to = gpu_of(args->gpuPairs[i].newUuid, s->options);
    if (to < 0) return CUDA_ERROR_INVALID_VALUE;
    for (int known : *next)
      if (known == to) return CUDA_ERROR_INVALID_VALUE;
    next->push_back(to);
  }
  return CUDA_SUCCESS;
}

void move_to(const std::vector<int>& gpus) {
  State* s = state();
  for (size_t i = 0; i < gpus.size(); ++i) s->devices[i]->become(gpus[i], s->options);
}

void become(CUprocessState next) {
  Lock lock(mutex);
  now.store(next);
  changed.broadcast();
}

}  // namespace

void wait_while_locked() {
  if (now.load(std::memory_order_relaxed) == CU_PROCESS_STATE_RUNNING) return;
  Lock lock(mutex);
  while (now.load() != CU_PROCESS_STATE_RUNNING) changed.wait(mutex);
}

}  // namespace simgpu

using namespace simgpu;

#define ENTER_LOCKED(name) SIMGPU_ENTER_WITH(#name, kInitialised | kWhileLocked)

SIMGPU_API cuCheckpointProcessGetState(int pid, CUprocessState* out) {
  ENTER_LOCKED(cuCheckpointProcessGetState);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = own(pid); r != CUDA_SUCCESS) return r;
  *out = static_cast<CUprocessState>(now.load());
  return CUDA_SUCCESS;
}

SIMGPU_API cuCheckpointProcessGetRestoreThreadId(int pid, int* out) {
  ENTER_LOCKED(cuCheckpointProcessGetRestoreThreadId);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = own(pid); r != CUDA_SUCCESS) return r;
  *out = getpid();  // any thread may do it here
  return CUDA_SUCCESS;
}

SIMGPU_API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  ENTER_LOCKED(cuCheckpointProcessLock);
  if (CUresult r = own(pid); r != CUDA_SUCCESS) return r;
  {
    Lock lock(mutex);
    if (now.load() != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
    now.store(CU_PROCESS_STATE_LOCKED);
  }
  const unsigned most = args ? args->timeoutMs : 0;
  for (unsigned ms = 0; !all_idle(); ++ms) {
    if (most != 0 && ms >= most) {
      become(CU_PROCESS_STATE_RUNNING);
      return CUDA_ERROR_NOT_READY;
    }
    timespec pause{0, 1000000};
    nanosleep(&pause, nullptr);
  }
  return CUDA_SUCCESS;
}

SIMGPU_API cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) {
  ENTER_LOCKED(cuCheckpointProcessCheckpoint);
  if (CUresult r = own(pid); r != CUDA_SUCCESS) return r;
  Lock lock(mutex);
  if (now.load() != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  for (Device* d : state()->devices) {
    released[d->ordinal] = d->used();
    d->discharge(released[d->ordinal]);
  }
  now.store(CU_PROCESS_STATE_CHECKPOINTED);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  ENTER_LOCKED(cuCheckpointProcessRestore);
  if (CUresult r = own(pid); r != CUDA_SUCCESS) return r;
  Lock lock(mutex);
  if (now.load() != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<int> before, after;
  if (args && args->gpuPairsCount != 0) {
    if (CUresult r = gpus_after(args, &before, &after); r != CUDA_SUCCESS) return r;
    move_to(after);
  }
  if (CUresult r = charge_again(); r != CUDA_SUCCESS) {
    move_to(before);
    return r;
  }
  now.store(CU_PROCESS_STATE_LOCKED);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) {
  ENTER_LOCKED(cuCheckpointProcessUnlock);
  if (CUresult r = own(pid); r != CUDA_SUCCESS) return r;
  if (now.load() != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  become(CU_PROCESS_STATE_RUNNING);
  return CUDA_SUCCESS;
}
