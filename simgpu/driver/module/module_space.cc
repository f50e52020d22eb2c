#include "driver/module/module_space.h"

namespace simgpu {

void ModuleSpace::start(uint64_t seed) {
  Lock lock(mutex_);
  random_ = Random(seed ^ 0x6d6f64756c6573ull ^ begin_);
  taken_.clear();
}

uint64_t ModuleSpace::place(uint64_t size) {
  Lock lock(mutex_);
  size = round_up(size != 0 ? size : 1, kPage);
  // A random gap before each module; the draw happens at every load, whatever space there is.
  uint64_t gap = random_.below(64) * kPage;
  uint64_t at = begin_ + 16 * kMiB + gap;
  size_t i = 0;
  for (; i < taken_.size(); ++i) {
    if (at + size <= taken_[i].offset) break;
    at = taken_[i].offset + taken_[i].size + gap;
  }
  if (at + size > end_) return ~0ull;
  taken_.insert(taken_.begin() + static_cast<long>(i), Taken{at, size});
  return at;
}

void ModuleSpace::remove(uint64_t offset) {
  Lock lock(mutex_);
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i].offset == offset) {
      taken_.erase(taken_.begin() + static_cast<long>(i));
      return;
    }
  }
}

}  // namespace simgpu
