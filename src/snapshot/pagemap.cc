#include "snapshot/pagemap.h"

#include <fcntl.h>

#include "common/address.h"
#include "common/syscall.h"

namespace gpuckpt {
namespace {

constexpr unsigned long kPagemapScan = 0xc0606610;
constexpr uint64_t kWpMatching = 1, kCheckWpAsync = 2;

struct ScanArgument {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
      category_mask, category_anyof_mask, return_mask;
};

}  // namespace

bool Pagemap::open() {
  fd_ = sys::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return false;
  // Kernels that do not know a category refuse it.
  uint64_t page = page_down(reinterpret_cast<uint64_t>(&page));
  PageRegion region;
  uint64_t at = page;
  scans_ = guards_ = true;
  if (call(&at, page + kPage, {.none = kPageGuard, .any = kPagePresent, .tell = kPagePresent},
           &region, 1) < 0)
    guards_ = false;
  at = page;
  scans_ = call(&at, page + kPage, {.any = kPagePresent, .tell = kPagePresent}, &region, 1) >= 0;
  return true;
}

void Pagemap::close() {
  if (fd_ >= 0) sys::close(fd_);
  fd_ = -1;
}

long Pagemap::call(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                   size_t room) {
  const uint64_t known = guards_ ? ~0ull : ~static_cast<uint64_t>(kPageGuard);
  const uint64_t none = query.none & known;
  ScanArgument a{};
  a.size = sizeof(a);
  a.flags = (query.protect ? kWpMatching : 0) | (query.tracked_only ? kCheckWpAsync : 0);
  a.start = *start, a.end = end;
  a.vec = reinterpret_cast<uint64_t>(out);
  a.vec_len = room;
  a.category_inverted = none | query.any_not;
  a.category_mask = query.all | none;
  a.category_anyof_mask = (query.any & known) | query.any_not;
  a.return_mask = out ? query.tell : 0;
  long n = sys::call(SYS_ioctl, fd_, static_cast<long>(kPagemapScan), sys::ptr(&a));
  if (n >= 0) *start = a.walk_end > *start ? a.walk_end : end;
  return n;
}

long Pagemap::scan(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                   size_t room) {
  return call(start, end, query, out, room);
}

// With somewhere to put regions, although nobody wants them: a call without protects every page of
// the range, also those that do not exist, which then look as if they were swapped out.
long Pagemap::protect(uint64_t start, uint64_t end, const PageQuery& query) {
  constexpr size_t kRoom = 512;
  static PageRegion unwanted[kRoom];
  PageQuery q = query;
  q.protect = true;
  q.tell = kPageWritten;
  while (start < end)
    if (long n = call(&start, end, q, unwanted, kRoom); n < 0) return n;
  return 0;
}

uint64_t Pagemap::words(uint64_t address, uint64_t* to, uint64_t pages) {
  long got = fd_ < 0 ? -1 : sys::pread(fd_, to, pages * 8, address / kPage * 8);
  return got > 0 ? static_cast<uint64_t>(got) / 8 : 0;
}

}  // namespace gpuckpt
