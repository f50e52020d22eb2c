// The arenas of the devices: one each, backed by the driver's virtual memory calls at a fixed,
// rarely used address.
//
// Threads: `lock` of a device guards its arena. Calls into the driver happen with it held (creating
// memory is one).
// Owner: process-wide, part of every snapshot. Errors: the driver's own result, untouched.
#pragma once

#include "device/base/lock_order.h"
#include "intercept/spec/cuda_types.h"

#include "device/arena/arena.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

inline constexpr int kMaxDevices = 16;

struct Reservation {
  uint64_t begin, size;
};

class VmmBacking : public Backing {
 public:
  int reserve(uint64_t bytes, uint64_t* address, uint64_t* got) override;
  int commit(uint64_t address, uint64_t bytes, uint64_t* handle) override;
  void decommit(uint64_t address, uint64_t bytes, uint64_t handle) override;
  int allow_access(uint64_t address, uint64_t bytes);

  int device = 0;
  bool rdma = false;
  bool exportable = false;
  uint32_t peers = 0;  // devices that may access this one's memory (bit per ordinal)
  Vector<Reservation> reservations;
};

// Where an allocation was found lately, so that the next copy there need not look again. Lossy,
// read and written by any thread at any time: a mixture of two can only make an overrun pass
// unseen.
struct LateFinds {
  struct Find {
    uint64_t begin = 0, end = 0, ended = ~uint64_t{0};
  };
  Find find[64];
  Find& at(uint64_t address) { return find[(address >> 9 ^ address >> 21) & 63]; }
};

struct DeviceMemory {
  Mutex lock{kArenaLock};
  LateFinds finds;
  bool ready = false;    // asked the driver
  bool has_vmm = false;  // false: native addresses; snapshots are refused
  uint64_t native = 0;   // allocations the arena could not take
  VmmBacking backing;
  Arena arena;
};

// The device's memory, asked from the driver at the first use. Null: no such device.
DeviceMemory* device_memory(int device);
// The device whose arena `address` lies in; -1: none.
int device_holding(uint64_t address);

// Restore: takes the reservations at their old places and backs every chunk again. False: `report`
// says what is taken.
bool rebuild_device_memory(DeviceReport* report);

// Lets `device` access memory of `owner`, now and in future.
int let_access(int owner, int device, bool allowed);

}  // namespace gpuckpt::device
