// FNV-1a, 64 bits: for the project's own tables and comparisons, not for names of data.
//
// Owner: none. Threads: pure functions. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

inline constexpr uint64_t kFnvBasis = 14695981039346656037ull;

// Continues from `hash`, the result of an earlier call or kFnvBasis.
inline uint64_t fnv(uint64_t hash, const void* bytes, size_t count) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  for (size_t i = 0; i < count; ++i) hash = (hash ^ at[i]) * 1099511628211ull;
  return hash;
}

}  // namespace gpuckpt
