#include "snapshot/memory/pagemap.h"

#include <errno.h>
#include <fcntl.h>

#include "base/address.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {

constexpr unsigned long kPagemapScan = 0xc0606610;
constexpr uint64_t kWpMatching = 1, kCheckWpAsync = 2;

struct ScanArgument {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
      category_mask, category_anyof_mask, return_mask;
};

// One word of /proc/self/pagemap.
constexpr uint64_t kWordSoftDirty = 1ull << 55, kWordExclusive = 1ull << 56,
                   kWordGuard = 1ull << 58, kWordFile = 1ull << 61, kWordSwapped = 1ull << 62,
                   kWordPresent = 1ull << 63;

bool matches(uint64_t categories, const PageQuery& q) {
  if ((categories & q.all) != q.all || categories & q.none) return false;
  return !(q.any | q.any_not) || categories & q.any || ~categories & q.any_not;
}

}  // namespace

uint64_t categories_of(uint64_t word) {
  if (word & kWordGuard) return kPageGuard;
  uint64_t c = 0;
  if (word & kWordFile) c |= kPageFile;
  if (word & kWordSwapped) c |= kPageSwapped;
  if (word & kWordPresent) c |= kPagePresent;
  if (word & kWordSoftDirty) c |= kPageSoftDirty;
  if (word & kWordSoftDirty || (word & kWordPresent && !(word & kWordExclusive))) c |= kPageWritten;
  return c;
}

bool Pagemap::open(Source source) {
  source_ = Source::kNone, guards_ = false;
  fd_ = sys::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return false;
  // Kernels that do not know a category refuse it.
  uint64_t page = page_down(reinterpret_cast<uint64_t>(&page));
  PageRegion region;
  auto works = [&](const PageQuery& query) {
    uint64_t at = page;
    return source == Source::kScan && call(&at, page + kPage, query, &region, 1) >= 0;
  };
  uint64_t word;
  guards_ = true;
  if (works({.none = kPageGuard, .any = kPagePresent, .tell = kPagePresent})) {
    source_ = Source::kScan;
    return true;
  }
  guards_ = false;
  if (works({.any = kPagePresent, .tell = kPagePresent}))
    source_ = Source::kScan;
  else if (sys::pread(fd_, &word, sizeof(word), page / kPage * 8) == sizeof(word))
    source_ = Source::kWords;
  return answers();
}

void Pagemap::close() {
  if (fd_ >= 0) sys::close(fd_);
  fd_ = -1;
  source_ = Source::kNone;
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
  a.return_mask = query.tell & known;
  long n = sys::call(SYS_ioctl, fd_, static_cast<long>(kPagemapScan), sys::ptr(&a));
  // Not walk_end: the kernel collects at most 512 regions at a time, notes there where it had to
  // stop for that, and does not correct it when it continues by itself and reaches the end (seen on
  // Linux 6.18). A caller that believed it got the last regions twice.
  if (n >= 0) *start = static_cast<size_t>(n) < room ? end : out[n - 1].end;
  return n;
}

long Pagemap::read_words(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                         size_t room) {
  constexpr uint64_t kWords = 4096;
  uint64_t word[kWords];
  const bool wants_absent = matches(0, query);
  size_t n = 0;
  while (*start < end) {
    const uint64_t pages = (end - *start) / kPage < kWords ? (end - *start) / kPage : kWords;
    const long got = sys::pread(fd_, word, pages * 8, *start / kPage * 8);
    if (got <= 0) return got ? got : -EIO;
    for (long i = 0; i < got / 8; ++i, *start += kPage) {
      if (!word[i] && !wants_absent) continue;  // much of a large reservation
      const uint64_t categories = categories_of(word[i]);
      if (!matches(categories, query)) continue;
      const uint64_t told = categories & query.tell;
      PageRegion* last = n ? &out[n - 1] : nullptr;
      if (last && last->end == *start && last->categories == told) {
        last->end += kPage;
        continue;
      }
      if (n == room) return static_cast<long>(n);
      out[n++] = {*start, *start + kPage, told};
    }
  }
  return static_cast<long>(n);
}

// The kernel holds the memory map's lock for the whole of a call, against which the program's
// threads map, unmap and grow the heap: a call looks at no more than takes some hundred
// microseconds. (In memory without pages that is terabytes.)
long Pagemap::scan_in_slices(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                             size_t room) {
  constexpr uint64_t kHugePage = 2ull << 20, kLeast = 8ull << 20, kMost = 1ull << 44,
                     kShortUs = 150, kLongUs = 800;
  uint64_t slice = 64ull << 20;
  size_t n = 0;
  while (*start < end && n < room) {
    const bool last = end - *start <= slice;
    const uint64_t until = last ? end : (*start + slice) & ~(kHugePage - 1);
    const uint64_t began = last ? 0 : sys::now_us();
    const long got = call(start, until, query, out + n, room - n);
    if (got < 0) return got;
    const uint64_t took = last ? kShortUs : sys::now_us() - began;
    if (took < kShortUs && slice < kMost) slice *= 4;
    if (took > kLongUs && slice > kLeast) slice /= 2;
    if (!got) continue;
    // What a slice has cut is one region.
    PageRegion* const next = out + n;
    n += static_cast<size_t>(got);
    if (next == out || next[-1].end != next->start || next[-1].categories != next->categories)
      continue;
    next[-1].end = next->end;
    __builtin_memmove(next, next + 1, static_cast<size_t>(got - 1) * sizeof(PageRegion));
    --n;
  }
  return static_cast<long>(n);
}

long Pagemap::scan(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                   size_t room) {
  if (source_ == Source::kNone || (source_ == Source::kWords && query.protect)) return -ENOTTY;
  return source_ == Source::kScan ? scan_in_slices(start, end, query, out, room)
                                  : read_words(start, end, query, out, room);
}

// With room for regions, although they are not used: a call without protects every page of the
// range, also those that do not exist, which then look as if they were swapped out.
long Pagemap::protect(uint64_t start, uint64_t end, const PageQuery& query) {
  constexpr size_t kRoom = 512;
  PageRegion unwanted[kRoom];
  PageQuery q = query;
  q.protect = true;
  q.tell = kPageWritten;
  while (start < end)
    if (long n = scan_in_slices(&start, end, q, unwanted, kRoom); n < 0) return n;
  return 0;
}

}  // namespace gpuckpt
