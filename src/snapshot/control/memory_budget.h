// What a snapshot may take of the memory that is left.
//
// Owner: the attempt. Threads: any. Errors: none; enough() says whether there can be a snapshot.
#pragma once

#include <cstdint>

#include "base/procfs/memory_room.h"

namespace gpuckpt {

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
