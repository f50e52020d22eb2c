#include "snapshot/job/copied_parts.h"

#include "base/hash/hash_index.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/shared_lock.h"

namespace gpuckpt {
namespace {

// Whether it was noted already; if not, it is now, if there is room.
bool note_part(SharedJobState* b, uint64_t dev, uint64_t ino, uint64_t start, uint64_t end) {
  HashIndex index(b->copied_slot, SharedJobState::kCopiedSlots);
  const uint64_t hash = combined_hash(dev, ino, start, end);
  const uint32_t found = index.find(hash, [&](uint32_t i) {
    const SharedJobState::CopiedPart& p = b->copied[i];
    return p.dev == dev && p.ino == ino && p.start == start && p.end == end;
  });
  if (found != HashIndex::kNone) return true;
  if (b->copied_count == SharedJobState::kMostCopied) return false;
  b->copied[b->copied_count] = {dev, ino, start, end};
  index.add(hash, b->copied_count++);
  return false;
}

}  // namespace

bool copied_by_another(uint64_t dev, uint64_t ino, uint64_t start, uint64_t end) {
  constexpr uint64_t kWorthIt = 256 << 10, kPatienceUs = 100'000;
  SharedJobState* b = job_barrier.shared_state();
  if (end - start < kWorthIt || !take_shared(&b->copied_lock, sys::now_us() + kPatienceUs))
    return false;
  const bool noted = note_part(b, dev, ino, start, end);
  give_shared(&b->copied_lock);
  return noted;
}

}  // namespace gpuckpt
