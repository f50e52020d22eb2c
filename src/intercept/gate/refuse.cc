#include "intercept/gate/refuse.h"

#include <atomic>

#include "intercept/doors/doors.h"
#include "intercept/spec/abi_table.h"

namespace gpuckpt {
namespace {

struct Live {
  std::atomic<int64_t> count;
  std::atomic<uint32_t> function;  // the last that made one
};
constexpr int kKinds = static_cast<int>(Kind::kCount);
constinit Live g_live[kKinds] = {};
constinit std::atomic<uint32_t> g_used[kDeclaredFunctions] = {};

constexpr int kFirstFunction = kKinds;
constexpr int kFirstThunk = kFirstFunction + static_cast<int>(kDeclaredFunctions);
constexpr int kEnd = kFirstThunk + static_cast<int>(kNamedThunks + kPoolThunks);

bool look(int index, Refusal* out) {
  if (index < kFirstFunction) {
    Live& live = g_live[index];
    int64_t n = live.count.load(std::memory_order_relaxed);
    if (n <= 0) return false;
    const AbiEntry& abi = kAbi[live.function.load(std::memory_order_relaxed)];
    *out = {abi.symbol, abi.reason, n};
    return true;
  }
  if (index < kFirstThunk) {
    const uint32_t f = static_cast<uint32_t>(index - kFirstFunction);
    uint32_t n = g_used[f].load(std::memory_order_relaxed);
    if (!n) return false;
    *out = {kAbi[f].symbol, kAbi[f].reason, n};
    return true;
  }
  const uint32_t thunk = static_cast<uint32_t>(index - kFirstThunk);
  uint64_t n = thunk_calls(thunk);
  const char* why = thunk_refusal(thunk);
  if (!n || !why) return false;
  *out = {thunk_name(thunk), why, static_cast<int64_t>(n)};
  return true;
}

}  // namespace

void refuse_live(Kind kind, int change, uint32_t function) {
  Live& live = g_live[static_cast<int>(kind)];
  live.count.fetch_add(change, std::memory_order_relaxed);
  if (change > 0) live.function.store(function, std::memory_order_relaxed);
}

void refuse_used(uint32_t function) { g_used[function].fetch_add(1, std::memory_order_relaxed); }

int refuse_next(int index, Refusal* out) {
  for (; index >= 0 && index < kEnd; index++) {
    if (look(index, out)) return index + 1;
  }
  return -1;
}

}  // namespace gpuckpt
