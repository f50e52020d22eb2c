#include "snapshot/memory/lazy.h"

#include "base/syscall.h"

namespace gpuckpt {
namespace {

bool expected;  // of this restored process, until no page is missing any more
bool was_lazy;  // it was restored so

bool some_missing(Smaps* smaps) {
  for (const SmapsRange& r : *smaps)
    if (r.flags & kSmapsMissing) return true;
  return false;
}

}  // namespace

void expect_lazy_pages(bool on) { expected = was_lazy = on; }

bool restored_lazily() { return was_lazy; }

// Reading smaps walks all page tables, so the pauses between two readings are longer than the
// readings.
bool await_lazy_pages(Smaps* smaps, uint64_t deadline_us) {
  while (expected && some_missing(smaps)) {
    const uint64_t t0 = sys::now_us();
    if (t0 > deadline_us) return false;
    smaps->read();
    const uint64_t took = sys::now_us() - t0;
    if (some_missing(smaps)) sys::sleep_us(10000 + took * 4);
  }
  expected = false;
  return true;
}

}  // namespace gpuckpt
