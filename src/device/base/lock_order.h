// The order of the locks of src/device, from the outermost to the innermost. While a thread holds
// one of them it takes only locks that are further down; two of one line are never held together
// (the arenas of two devices, for example). "Which lock may I take while I hold the arena's?" is
// answered here: the ones below kArenaLock.
//
// A build with -DGPUCKPT_LOCK_ORDER=ON stops the program where this is violated (base/mutex.h).
//
// Locks of other parts that are taken below all of these, each for a moment in which no other is
// taken: the realm's (heap, maps, threads), the translation's tables, the gate's list of threads.
//
// Owner: none, constants. Threads: any. Errors: none.
#pragma once

#include <cstdint>

namespace gpuckpt::device {

enum LockRank : uint8_t {
  kNoRank = 0,
  kContextLock,      // hooks_context.cc: a context begins or ends, until that is recorded
  kPlacingLock,      // hooks_module.cc: code and variables are placed, until that is recorded
  kConditionalLock,  // conditionals.cc: a conditional handle is made, until that is recorded
  kPoolSharingLock,  // hooks_pool_sharing.cc: pools whose descriptors were given away
  kPoolLock,         // hooks_pool.cc: frees that wait for their stream, and what pools keep
  kPinnedLock,       // hooks_pinned.cc: pinned host memory, and the application's registrations
  kVmmLock,          // vmm_records.h: the application's own reservations and mappings
  kStageLock,        // stage.cc: copies that wait to be drained
  kPumpLock,      // device_pump.h: a pump's stream and buffers, where the stage's lock is not used
  kSinkPinLock,   // device_pump.cc: the registration of the ring to the writer
  kMemoriesLock,  // arena_driver.cc: the device's memory is being asked for the first time
  kArenaLock,     // arena_driver.h: the arena of one device
  kIpcLock,       // ipc.cc: memory that processes of the job share
  kIpcEventLock,  // ipc_events.cc: events that they share
  kSyncMemopsLock,    // hooks_memory.cc: addresses with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  kRegistryLock,      // registry.h: the CUDA objects that are alive
  kCapturePointLock,  // hooks_graph.cc: buffers for the names of a stream capture's points
  kCallSiteLock,      // call_sites.cc: where allocations were made
  kSettingsLock,      // settings.cc
  kHeapLock,          // memory.cc: the device side's own heap
};

}  // namespace gpuckpt::device
