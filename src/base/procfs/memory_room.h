// How much memory is free: of the machine, and of each control group with a limit that the process
// is in.
//
// Owner: none, the result is a value. Threads: any that may open descriptors; inside the
// application the I/O thread. Errors: what cannot be read counts as without a limit.
#pragma once

#include <cstdint>

namespace gpuckpt {

struct MemoryRoom {
  uint64_t left = ~0ull, all = ~0ull;
  uint64_t swap = 0;     // what may go to disk beside it
  char group[512] = "";  // whose limit it is; empty: the machine's
  bool tight() const { return all != ~0ull && left < all / 32; }
};

// The tightest one. A group's page cache that no process has mapped counts as room, because the
// kernel can reclaim it. `memberships`: as /proc/self/cgroup; `mounts`: where the hierarchies are
// mounted. ON THE I/O THREAD.
MemoryRoom memory_room(const char* memberships = "/proc/self/cgroup",
                       const char* mounts = "/sys/fs/cgroup");
// The machine's alone.
MemoryRoom machine_room();

}  // namespace gpuckpt
