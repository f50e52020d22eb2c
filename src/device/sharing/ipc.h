// Memory of cuMemAlloc in other processes (cuIpc*). Ours is virtual memory, for which the driver
// gives no such handles: a handle of ours says which process has the memory, and under which number
// that process hands out a descriptor for it (base/descriptors/handover.h). A process that opens
// the handle maps that memory.
//
// A snapshot of the job holds the memory once, as its owner's. Restored, the owner offers the same
// chunks under the same numbers, and the processes that had opened them map them at their old
// addresses.
//
// Owner: process-wide, part of every snapshot. Threads: hooks, inside the gate but for IpcFetch;
// the device worker; PARKED where it says so. kIpcLock and kIpcEventLock guard the lists. Errors:
// -errno, false, or the report's failure.
#pragma once

#include "intercept/spec/cuda_types.h"

#include <cstdint>

#include "base/descriptors/handover.h"
#include "intercept/gate/gate.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

// Is memory shared with another process, as far as we can know?
bool ipc_shared();
// Other processes can have, or get, memory of the chunk that begins there.
bool ipc_offers_chunk(uint64_t begin);
// A thread outside the gate waits for memory of another process.
bool ipc_fetching();
// PARKED (device_plugin.h).
bool ipc_shares(void* context, bool (*one)(void* context, const DeviceShare&));

// What a program asks about memory that it opened.
bool find_opened(uint64_t address, uint64_t* begin, uint64_t* size);

// Memory of another process's pool (cuMemPoolImportPointer), and the end of its mapping here.
bool ipc_from_pool(CUdeviceptr address);
void ipc_free_from_pool(CUdeviceptr address);

// Something of another process, from the question to where it is recorded. The thread leaves the
// gate while it waits for the owner, because a snapshot may be what delays the owner's answer.
class IpcFetch {
 public:
  IpcFetch();
  ~IpcFetch();
  IpcFetch(const IpcFetch&) = delete;
  IpcFetch& operator=(const IpcFetch&) = delete;
  long descriptor(int pid, uint64_t identity, uint32_t offer);  // or -errno (handover.h)
};
inline constexpr uint64_t kIpcRestorePatienceUs = 600'000'000;  // owners have much to fill first

// A descriptor of ours in a high number, out of the way of the program's; and its end.
int ipc_own_descriptor(int fd);
void ipc_close_descriptor(int fd);

// Events (ipc_events.cc).
bool ipc_opened_event(uint64_t name);  // it is another process's
bool ipc_offers_event(int number);
bool ipc_event_shares(void* context, bool (*one)(void* context, const DeviceShare&));
void ipc_forget_event(uint64_t name);  // before it is destroyed

// A chunk of an arena is given back. Its device's lock is held.
void ipc_forget_chunk(uint64_t begin);

// A restored process. First: descriptors of the last generation are forgotten. With the arenas
// there: they are offered again; then what was opened is fetched from its owners, which may need
// time until they can answer.
void ipc_restart();
bool ipc_offer_again(DeviceReport* report);
bool rebuild_opened(DeviceReport* report);
// The same of events, with all others there.
bool replay_shared_events(DeviceReport* report);
// Last, with the gate closed: until those whose memory is mapped here have filled it, since what
// the program wrote to it before would be lost.
bool ipc_await_owners(DeviceReport* report);

}  // namespace gpuckpt::device
