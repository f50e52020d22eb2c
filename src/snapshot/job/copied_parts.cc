#include "snapshot/job/copied_parts.h"

#include "base/hash/hash_index.h"
#include "base/syscall.h"
#include "snapshot/job/barrier.h"

namespace gpuckpt {
namespace {

// Held for some microseconds. Without it (a process that was killed has it) each copies.
class Lock {
 public:
  explicit Lock(std::atomic<uint32_t>* word) : word_(word) {
    constexpr uint64_t kPatienceUs = 100'000;
    const uint64_t patience = sys::now_us() + kPatienceUs;
    while (!(held_ = !word->exchange(1)) && sys::now_us() < patience)
      sys::futex_wait(word, 1, 1000, true);
  }
  ~Lock() {
    if (!held_) return;
    *word_ = 0;
    sys::futex_wake(word_, 1, true);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return held_; }

 private:
  std::atomic<uint32_t>* word_;
  bool held_ = false;
};

}  // namespace

bool copied_by_another(uint64_t dev, uint64_t ino, uint64_t start, uint64_t end) {
  constexpr uint64_t kWorthIt = 256 << 10;
  if (!job_barrier.has_others() || end - start < kWorthIt) return false;
  SharedJobState* b = job_barrier.shared_state();
  HashIndex index(b->copied_slot, SharedJobState::kCopiedSlots);
  const uint64_t hash = combined_hash(dev, ino, start, end);
  const Lock lock(&b->copied_lock);
  if (!lock.held()) return false;
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

}  // namespace gpuckpt
