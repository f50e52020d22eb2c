// gpuckpt_exclude and gpuckpt_include. A range counts only where its mapping carries the kernel's
// mark as well (capture.cc looks): what was unmapped and mapped again is saved.
#include <errno.h>
#include <sys/mman.h>

#include <atomic>

#include "base/address.h"
#include "base/syscall.h"
#include "gpuckpt/gpuckpt.h"
#include "snapshot/api/api.h"

namespace gpuckpt {
namespace {

struct Excluded {
  std::atomic<uint64_t> start;  // 0: free, 1: being filled in
  uint64_t end;
};
constexpr size_t kExcluded = 256;
// Declared by the program for every later snapshot, on any thread.
Excluded excluded[kExcluded];
std::atomic<bool> came_back{false};  // a range was included again since the last question

Range whole_pages(void* address, size_t bytes) {
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  Range r{page_up(start), page_down(start + bytes)};
  if (start + bytes < start || r.start >= r.end) return {0, 0};
  return r;
}

}  // namespace

bool next_excluded(uint64_t from, uint64_t to, Range* piece) {
  *piece = {to, to};
  for (const Excluded& e : excluded) {
    uint64_t start = e.start, end = e.end;
    if (start <= 1 || start >= to || end <= from) continue;
    if (start < from) start = from;
    if (end > to) end = to;
    if (start < piece->start) *piece = {start, end};
  }
  return piece->start < to;
}

bool excluded_came_back() { return came_back.exchange(false); }

}  // namespace gpuckpt

using namespace gpuckpt;

GPUCKPT_EXPORT int gpuckpt_exclude(void* address, size_t bytes) {
  const Range r = whole_pages(address, bytes);
  if (!r.end) return -EINVAL;
  for (Excluded& e : excluded) {
    uint64_t free = 0;
    if (!e.start.compare_exchange_strong(free, 1)) continue;
    e.end = r.end;
    const long marked = sys::call(SYS_madvise, static_cast<long>(r.start),
                                  static_cast<long>(r.end - r.start), MADV_DONTDUMP);
    e.start = sys::failed(marked) ? 0 : r.start;
    return sys::failed(marked) ? static_cast<int>(marked) : 0;
  }
  return -ENOSPC;
}

GPUCKPT_EXPORT int gpuckpt_include(void* address, size_t bytes) {
  const Range r = whole_pages(address, bytes);
  for (Excluded& e : excluded) {
    if (!r.end || e.start != r.start || e.end != r.end) continue;
    uint64_t start = r.start;
    if (!e.start.compare_exchange_strong(start, 0)) continue;
    came_back = true;
    sys::call(SYS_madvise, static_cast<long>(r.start), static_cast<long>(r.end - r.start),
              MADV_DODUMP);
    return 0;
  }
  return -ENOENT;
}
