// Which kernels and functions were used in which context: a lossy table, looked up at every launch,
// so that the first use is noticed. The driver places code and variables then, and a replay has to
// repeat it in the same order.
//
// Owner: process-wide. Threads: any, without locks. Errors: none; what is lost is noted again,
// which the registry finds out.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuckpt {

inline constexpr uint32_t kUseNotes = 1 << 13;
extern std::atomic<uint64_t> use_notes[kUseNotes];

inline uint64_t use_key(uint64_t function, uint64_t context) {
  return (function ^ (context << 32 | context >> 32)) * 0x9e3779b97f4a7c15ull;
}
inline bool is_used(uint64_t function, uint64_t context) {
  const uint64_t key = use_key(function, context);
  return use_notes[key >> 51].load(std::memory_order_relaxed) == key;
}
inline void note_used(uint64_t function, uint64_t context) {
  const uint64_t key = use_key(function, context);
  use_notes[key >> 51].store(key, std::memory_order_relaxed);
}
// Handles may come back with another meaning: after an unload, and after the end of a context.
void forget_uses();

}  // namespace gpuckpt
