// How much memory is left for a snapshot: of the machine, and of each control group with a limit
// that the process is in.
#pragma once

#include <cstdint>

namespace gpuckpt {

struct MemoryRoom {
  uint64_t left = ~0ull, all = ~0ull;
  char group[512] = "";  // whose limit it is; empty: the machine's
  bool tight() const { return all != ~0ull && left < all / 32; }
};

// The tightest one. What a group holds of files that nobody has mapped counts as room: it can be
// had back. `memberships`: as /proc/self/cgroup; `mounts`: where
// the hierarchies are mounted. ON THE COURIER.
MemoryRoom memory_room(const char* memberships = "/proc/self/cgroup",
                       const char* mounts = "/sys/fs/cgroup");
// The machine's alone.
MemoryRoom machine_room();

// What a snapshot may take of it.
struct MemoryBudget {
  // For the writer, our tables and the smallest ring (measured: 7 to 10 MiB).
  static constexpr uint64_t kLeast = 12ull << 20;

  uint64_t bytes = ~0ull;      // for everything; ~0: as much as it likes
  uint32_t ring_slots = 0;     // wire::kRingSlots, or fewer
  bool while_stopped = false;  // no copy-on-write child, which grows as the program writes
  MemoryRoom room;
  bool enough() const { return bytes >= kLeast; }
  uint64_t for_copies() const { return bytes == ~0ull ? bytes : bytes - kLeast; }
};
// `spare`: as little as possible.
MemoryBudget memory_budget(const MemoryRoom&, bool spare);

}  // namespace gpuckpt
