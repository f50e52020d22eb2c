// Suspend: the program's device memory goes to host memory and back to the driver, while the
// program waits at the gate; what it holds (addresses, contexts, streams, modules) stays. Wake:
// memory at the same addresses again, filled with what it held. Memory that other processes may
// have stays where it is: they go on.
//
// With `release` all the rest goes, too, by the driver's own checkpoint of the process: contexts
// with their modules, arrays and the program's own mappings. It brings them back under the same
// handles and addresses, on other devices when it is asked to, so that nothing of the program, nor
// of a runtime that keeps the driver's values, has to be told.
#include <sys/mman.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "device/arena/arena_driver.h"
#include "device/arena/vmm.h"
#include "device/base/gpu_map.h"
#include "device/capture/capture.h"
#include "device/hooks/hooks.h"
#include "device/objects/arrays.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

// Memory that other processes may have stays, because they keep running with it.
template <typename F>
void each_own_chunk(DeviceMemory* memory, F f) {
  for (Chunk* c = memory->arena.first_chunk(); c; c = memory->arena.next_chunk(c))
    if (!ipc_offers_chunk(c->begin) && !f(c)) return;
}

// One device's memory, chunk after chunk in the order of addresses.
struct Suspended {
  Region host;
  uint64_t bytes;
};
Suspended suspended[kMaxDevices];
enum class Own { kNone, kLocked, kCheckpointed } own;  // what the driver's own checkpoint has

// Copies between the chunks of a device and host memory, on a stream of ours.
CUresult copy_chunks(int device, char* host, bool to_host) {
  DeviceMemory* memory = device_memory(device);
  WithContext with(any_context(device));
  CUstream stream = nullptr;
  if (!with) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  each_own_chunk(memory, [&](Chunk* c) {
    if (result != CUDA_SUCCESS) return false;
    result = to_host ? real().cuMemcpyDtoHAsync_v2(host, c->begin, c->size, stream)
                     : real().cuMemcpyHtoDAsync_v2(c->begin, host, c->size, stream);
    host += c->size;
    return true;
  });
  CUresult end = stream ? real().cuStreamSynchronize(stream) : result;
  if (stream) real().cuStreamDestroy_v2(stream);
  return result != CUDA_SUCCESS ? result : end;
}

void decommit(DeviceMemory* memory, const Chunk* until) {
  each_own_chunk(memory, [&](Chunk* c) {
    if (c == until) return false;
    memory->backing.decommit(c->begin, c->size, c->handle);
    c->handle = 0;
    return true;
  });
}

// Backs all chunks with memory again, or none.
int commit(DeviceMemory* memory) {
  int error = 0;
  Chunk* failed = nullptr;
  each_own_chunk(memory, [&](Chunk* c) {
    error = memory->backing.commit(c->begin, c->size, &c->handle);
    if (error) failed = c;
    return !error;
  });
  if (failed) decommit(memory, failed);
  return error;
}

uint64_t held_bytes(int device) {
  DeviceMemory* memory = machine_facts.devices > device ? device_memory(device) : nullptr;
  if (!memory || !memory->has_vmm) return 0;
  MutexLock guard(memory->lock);
  memory->arena.trim();
  uint64_t bytes = 0;
  each_own_chunk(memory, [&](Chunk* c) {
    bytes += c->size;
    return true;
  });
  return bytes;
}

void drop_copies() {
  for (Suspended& s : suspended) {
    scratch_unmap(&s.host);
    s.bytes = 0;
  }
}

bool copy_out(DeviceReport* report) {
  for (int device = 0; device < kMaxDevices; ++device) {
    Suspended& s = suspended[device];
    s.bytes = held_bytes(device);
    if (!s.bytes) continue;
    s.host = scratch_map(s.bytes);
    if (!s.host)
      return report->fail(kExitError, "no host memory for the %lu bytes of device %d",
                          static_cast<unsigned long>(s.bytes), device);
    CUresult result = copy_chunks(device, s.host.data(), true);
    if (result != CUDA_SUCCESS)
      return report->fail(kExitError, "device %d: its memory cannot be copied (driver error %d)",
                          device, static_cast<int>(result));
    report->device_bytes += s.bytes;
  }
  return true;
}

bool can_release(DeviceReport* report) {
  return present(real().cuCheckpointProcessCheckpoint) ||
         report->fail(
             kExitRefused,
             "--release (contexts given back, too) needs a driver that can checkpoint a process "
             "(570 or later)");
}

// Everything is idle and no other thread is inside the driver.
bool release_contexts(DeviceReport* report) {
  const int self = sys::getpid();
  CUcheckpointLockArgs args = {};
  args.timeoutMs = 10000;
  CUresult result = real().cuCheckpointProcessLock(self, &args);
  if (result == CUDA_SUCCESS) {
    own = Own::kLocked;
    result = real().cuCheckpointProcessCheckpoint(self, nullptr);
    if (result == CUDA_SUCCESS) own = Own::kCheckpointed;
  }
  return result == CUDA_SUCCESS ||
         report->fail(kExitError,
                      "the driver does not give the contexts back (driver error "
                      "%d)",
                      static_cast<int>(result));
}

bool take_contexts(const char* gpu_map, DeviceReport* report) {
  const int self = sys::getpid();
  static CUcheckpointGpuPair pairs[kMaxDevices];
  CUcheckpointRestoreArgs args = {};
  if (*gpu_map) {
    if (!pair_gpus(gpu_map, pairs, report)) return false;
    args.gpuPairs = pairs;
    args.gpuPairsCount = static_cast<unsigned>(machine_facts.devices);
  }
  CUresult result = CUDA_SUCCESS;
  if (own == Own::kCheckpointed)
    result = real().cuCheckpointProcessRestore(self, *gpu_map ? &args : nullptr);
  if (result == CUDA_SUCCESS) {
    own = Own::kLocked;
    result = real().cuCheckpointProcessUnlock(self, nullptr);
  }
  if (result == CUDA_SUCCESS) own = Own::kNone;
  return result == CUDA_SUCCESS ||
         report->fail(
             kExitError,
             "the driver does not take the contexts back (driver error %d); the program stays "
             "suspended: try again when there is memory",
             static_cast<int>(result));
}

}  // namespace

bool suspend(uint64_t gate_ms, uint64_t deadline_ms, bool release, DeviceReport* report) {
  if (release && !can_release(report)) return false;
  if (!freeze(gate_ms, deadline_ms, report)) return false;
  if (release && (ipc_shared() || vmm_imported())) {
    gate_open();
    return report->fail(kExitRefused,
                        "memory is shared with another process (cuIpc*, "
                        "cuMemImportFromShareableHandle): not with --release");
  }
  report->device_bytes = 0;
  report->stays_suspended = false;
  if (!copy_out(report)) {
    drop_copies();
    gate_open();
    return false;
  }
  for (int device = 0; device < kMaxDevices; ++device)
    if (suspended[device].bytes) decommit(device_memory(device), nullptr);
  if (!release) return true;
  if (release_contexts(report)) {
    report->device_bytes += vmm_bytes() + array_bytes();
    return true;
  }
  DeviceReport back = {};
  if (wake("", &back)) return false;
  report->stays_suspended = true;
  return report->fail(back.code, "%s", back.text);
}

bool wake(const char* gpu_map, DeviceReport* report) {
  gate_bypass_this_thread();
  report->code = kExitOk;
  if (*gpu_map && own != Own::kCheckpointed)
    return report->fail(
        kExitRefused,
        "--gpu-map is for what was suspended with --release; the contexts are on their "
        "devices still");
  if (*gpu_map && machine_facts.driver_version < 13000)
    return report->fail(
        kExitRefused,
        "--gpu-map needs a driver that moves processes between devices (580 or later)");
  if (own != Own::kNone && !take_contexts(gpu_map, report)) return false;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (!suspended[device].bytes) continue;
    WithContext with(any_context(device));
    int error = commit(device_memory(device));
    if (!error) continue;
    for (int before = 0; before < device; ++before)
      if (suspended[before].bytes) decommit(device_memory(before), nullptr);
    return report->fail(
        kExitError,
        "device %d: the program's %lu bytes cannot be allocated (driver error %d); it stays "
        "suspended: try again when there is memory",
        device, static_cast<unsigned long>(suspended[device].bytes), error);
  }
  for (int device = 0; device < kMaxDevices; ++device) {
    if (!suspended[device].bytes) continue;
    CUresult result = copy_chunks(device, suspended[device].host.data(), false);
    if (result == CUDA_SUCCESS) continue;
    for (int d = 0; d < kMaxDevices; ++d)
      if (suspended[d].bytes) decommit(device_memory(d), nullptr);
    return report->fail(
        kExitError,
        "device %d: its memory cannot be filled (driver error %d); the program stays "
        "suspended",
        device, static_cast<int>(result));
  }
  drop_copies();
  gate_open();
  return true;
}

}  // namespace gpuckpt::device
