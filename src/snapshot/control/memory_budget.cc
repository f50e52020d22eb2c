#include "snapshot/control/memory_budget.h"

#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

// Free memory above which nothing is spared; and above which a copied child has room to grow until
// that is noticed (memory_pressure.h).
constexpr uint64_t kMiB = 1 << 20, kPlenty = 256 * kMiB, kRoomToGrow = 96 * kMiB;

}  // namespace

MemoryBudget memory_budget(const MemoryRoom& room, bool spare) {
  MemoryBudget b;
  b.room = room;
  b.ring_slots = wire::kRingSlots;
  if (room.left >= kPlenty && !spare) return b;
  b.bytes = room.left;
  const uint64_t slots = spare ? 0 : room.left / 8 / wire::kSlotBytes;
  if (slots < b.ring_slots) b.ring_slots = slots < 2 ? 2 : static_cast<uint32_t>(slots);
  b.while_stopped = spare || room.left < kRoomToGrow;
  return b;
}

}  // namespace gpuckpt
