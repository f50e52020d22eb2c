#include "base/text/text.h"
#include "intercept/spec/abi_table.h"

namespace gpuckpt {

int abi_lookup(const char* base, uint32_t version, bool per_thread) {
  int best = -1;
  bool has_per_thread = false;
  for (uint32_t i = 0; i < kDeclaredFunctions; i++) {
    const AbiEntry& e = kAbi[i];
    if (e.version == 0 || !equal(e.base, base)) continue;
    has_per_thread |= e.per_thread;
  }
  for (uint32_t i = 0; i < kDeclaredFunctions; i++) {
    const AbiEntry& e = kAbi[i];
    if (e.version == 0 || e.version > version || !equal(e.base, base)) continue;
    if (e.per_thread != (per_thread && has_per_thread)) continue;
    if (best < 0 || e.version > kAbi[best].version) best = static_cast<int>(i);
  }
  return best;
}

}  // namespace gpuckpt
