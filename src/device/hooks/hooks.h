// What the hooks share: the path of a device allocation, and pinned memory's answers to pointer
// questions.
//
// Owner: none. Threads: hooks, inside the gate; the restore's worker. Errors: the driver's own
// result, or the report's failure.
#pragma once

#include "device/arena/arena_driver.h"
#include "device/base/registry.h"

namespace gpuckpt {

// What the table of hooks has besides hooks (intercept/generated/custom_hooks.h says more).
bool give_memory_back();
CUresult leaves_allocation(CUdeviceptr address, uint64_t bytes);
void first_use(CUfunction function);

}  // namespace gpuckpt

namespace gpuckpt::device {

// After a call ran out of memory of `device`: releases what the library itself still holds there,
// which are freed memory of pools, memory of which the last descriptor was closed, the stage and
// the arena's spare block. Takes locks, so the caller holds none; the caller makes the call again.
void make_room(int device);

// Takes memory from the device's arena for `context` (name). When there is none it calls
// make_room() and tries once more.
CUresult take_memory(int device, uint64_t context, uint64_t pool, uint64_t bytes, CUdeviceptr* out);

// While a capture is open some calls fail natively (and spoil the capture): makes the driver
// decide, by an equally forbidden call that changes nothing. CUDA_SUCCESS: allowed.
CUresult ask_capture();

// The calling thread's context may be broken for good (an illegal address): every call then says
// so. CUDA_SUCCESS: no.
CUresult ask_context();

// Frees what the arena holds for a context that ends.
void free_memory_of(uint64_t context);
void free_pinned_of(uint64_t context);

bool replay_sync_memops(DeviceReport* report);  // restored

// Pinned memory: the allocation or registration that covers a host address.
struct PinnedView {
  uint64_t begin, size, id, context;
  unsigned flags;
  bool ours;  // cuMemHostAlloc rather than cuMemHostRegister
  bool managed;
};
bool find_pinned(uint64_t address, PinnedView* out);
CUresult free_pinned(uint64_t address);  // waits as the driver would; not found: INVALID_VALUE
bool rebuild_pinned(DeviceReport* report);
// Host memory that the device can write past the processor's page tables. False: `range` said stop.
bool each_pinned(void* context, bool (*range)(void* context, uint64_t start, uint64_t end));
uint64_t pinned_bytes();

// Pools.
PoolObject* know_pool(CUmemoryPool pool, int device, bool standard);
bool is_imported_pool(CUmemoryPool pool);
bool share_pools_again(DeviceReport* report);  // restored
bool free_pool_memory(CUdeviceptr address);    // cuMemFree on memory of a pool
void pools_reclaim(bool all);                  // what finished streams no longer use
bool pools_finish_frees();  // gate closed and all idle: pending frees are done. Drops driver events

// Frees the stage's device memory for the application. Returns true if any was freed.
bool free_stage_memory();
uint64_t stage_bytes(int device);
void stage_leave_context(uint64_t context);  // before it is destroyed

// A context was made or comes to its end. `name` of the context.
void context_ended(uint64_t name);

}  // namespace gpuckpt::device
