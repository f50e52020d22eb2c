// A hash table of numbers: finds one among thousands without a look at each. Nothing is ever
// removed.
//
// Owner: the caller, whose memory it uses, all zeros at first. Threads: one, nothing is locked.
// Errors: none; more numbers than slots are the caller's mistake.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/hash/fnv.h"

namespace gpuckpt {

class HashIndex {
 public:
  static constexpr uint32_t kNone = ~0u;

  HashIndex() = default;
  // `slots`: a power of two, more than there will be numbers; twice as many keeps it fast.
  HashIndex(uint32_t* slot, uint32_t slots) : slot_(slot), last_(slots - 1) {}
  static constexpr uint64_t bytes_for(uint32_t slots) { return slots * sizeof(uint32_t); }

  void add(uint64_t hash, uint32_t number) {
    uint32_t at = place_of(hash);
    while (slot_[at]) at = (at + 1) & last_;
    slot_[at] = number + 1;
  }
  // The first number added of which is_it(number) is true, or kNone. It is asked of others, too,
  // whose hash is another one.
  template <typename IsIt>
  uint32_t find(uint64_t hash, IsIt is_it) const {
    for (uint32_t at = place_of(hash); slot_ && slot_[at]; at = (at + 1) & last_)
      if (is_it(slot_[at] - 1)) return slot_[at] - 1;
    return kNone;
  }

 private:
  // Of a product, the high bits are the mixed ones.
  uint32_t place_of(uint64_t hash) const {
    return static_cast<uint32_t>(hash * 0x9e3779b97f4a7c15ull >> 32) & last_;
  }

  uint32_t* slot_ = nullptr;
  uint32_t last_ = 0;
};

// The hash of several values; not of structs with padding.
template <typename... T>
uint64_t combined_hash(const T&... values) {
  uint64_t h = kFnvBasis;
  ((h = fnv(h, &values, sizeof(values))), ...);
  return h;
}

}  // namespace gpuckpt
