#include "intercept/gate/step.h"

#include <atomic>
#include <initializer_list>

#include "base/syscall.h"
#include "intercept/spec/abi_table.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kFinishUs = 1'000'000;  // between two calls of a program that is still at work

std::atomic<bool> on, held;
std::atomic<uint64_t> count, limit;

bool contains(const char* text, const char* word) {
  for (; *text; ++text) {
    const char *a = text, *b = word;
    while (*b && *a == *b) ++a, ++b;
    if (!*b) return true;
  }
  return false;
}

// Some queries and waits have hooks of their own, and with them another class.
bool changes(uint32_t function) {
  if (function >= kDeclaredFunctions) return true;
  FunctionClass cls = kAbi[function].cls;
  if (cls == FunctionClass::kQuery || cls == FunctionClass::kSync) return false;
  for (const char* word : {"Get", "Query", "Synchronize", "Current"})
    if (contains(kAbi[function].symbol, word)) return false;
  return true;
}

}  // namespace

void step_begin(uint64_t most) {
  count = 0;
  held = false;
  limit = most;
  on = true;
}
void step_end() { on = false; }
bool stepping() { return on.load(std::memory_order_relaxed); }
uint64_t step_count() { return count; }

bool step_finish(uint64_t until_us) {
  uint64_t expected = kNoStepLimit;
  limit.compare_exchange_strong(expected, count);
  while (count < limit) {
    if (sys::now_us() >= until_us) return false;
    sys::sleep_us(1000);
  }
  uint64_t patience = sys::now_us() + kFinishUs;
  while (!held && sys::now_us() < patience) sys::sleep_us(1000);
  return true;
}

bool step_pass(uint32_t function) {
  if (!stepping() || !changes(function)) return true;
  uint64_t n = count;
  do {
    if (n >= limit) {
      held = true;
      return false;
    }
  } while (!count.compare_exchange_weak(n, n + 1));
  return true;
}

}  // namespace gpuckpt
