// Where modules lie. Every context has one region of kModuleRegion bytes for them; a load gets an
// offset that is the same in all contexts and depends only on SIMGPU_SEED and on the order and
// sizes of the loads and unloads so far in this process. Replaying them over the same region gives
// every global and function its old address.
#pragma once

#include <vector>

#include "base.h"

namespace simgpu {

constexpr uint64_t kModuleRegion = 4 * kGiB;

class ModuleSpace {
 public:
  void seed(uint64_t s) { random_ = Random(s ^ 0x6d6f64756c6573ull); }
  uint64_t place(uint64_t size);  // ~0: full
  void remove(uint64_t offset);

 private:
  struct Taken {
    uint64_t offset, size;
  };
  Mutex mutex_;
  Random random_;
  std::vector<Taken> taken_;  // by offset
};

}  // namespace simgpu
