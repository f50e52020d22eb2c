// Where modules lie. Every context has one region of kModuleRegion bytes for them. The lower half
// is for its own modules: a load gets an offset that depends only on SIMGPU_SEED and on the order
// and sizes of the loads and unloads so far in this context. The upper half is for libraries, which
// have the same offset in all contexts; it depends on those of the process's libraries. Replaying
// them over the same region gives every global and function its old address, whatever contexts
// there were before.
#pragma once

#include <vector>

#include "driver/base/base.h"

namespace simgpu {

constexpr uint64_t kModuleRegion = 4 * kGiB;
constexpr uint64_t kLibraries = kModuleRegion / 2;  // they start there

class ModuleSpace {
 public:
  ModuleSpace(uint64_t begin, uint64_t end) : begin_(begin), end_(end) {}
  // Empties the space and draws new offsets.
  void start(uint64_t seed);
  uint64_t place(uint64_t size);  // ~0: full
  void remove(uint64_t offset);

 private:
  struct Taken {
    uint64_t offset, size;
  };
  const uint64_t begin_, end_;
  Mutex mutex_;
  Random random_;
  std::vector<Taken> taken_;  // by offset
};

}  // namespace simgpu
