// Descriptors the driver opened: one bit each.
#include <atomic>

#include "intercept/realm/realm_internal.h"

namespace gpuckpt::realm_fds {
namespace {
constexpr int kMax = 1 << 16;
constinit std::atomic<uint64_t> g_bit[kMax / 64] = {};
}  // namespace

int opened(int fd) {
  if (fd >= 0 && fd < kMax) {
    g_bit[fd / 64].fetch_or(1ull << (fd % 64), std::memory_order_relaxed);
  }
  return fd;
}

void closed(int fd) {
  if (fd >= 0 && fd < kMax) {
    g_bit[fd / 64].fetch_and(~(1ull << (fd % 64)), std::memory_order_relaxed);
  }
}

bool owns(int fd) {
  return fd >= 0 && fd < kMax && (g_bit[fd / 64].load(std::memory_order_relaxed) >> (fd % 64) & 1);
}

void rewind() {
  for (auto& b : g_bit) b.store(0, std::memory_order_relaxed);
}

}  // namespace gpuckpt::realm_fds
