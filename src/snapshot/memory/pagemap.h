// Which pages of this process exist, are zero, or were written: PAGEMAP_SCAN (Linux 6.7), and where
// the kernel has no such call the same answers from /proc/self/pagemap, one word per page. Raw
// system calls only; may be used while parked and in the copied child, by one thread of a process
// at a time. Facts: linux/fs.h, fs/proc/task_mmu.c, Documentation/admin-guide/mm/pagemap.rst.
//
// Owner: its descriptor is closed by close(). Threads: one at a time. Errors: -errno; answers()
// says whether it can be asked at all.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

enum PageCategory : uint64_t {
  kPageTrackable = 1,  // the mapping is registered for asynchronous write protection
  kPageWritten = 2,    // not write-protected by userfaultfd
  kPageFile = 4,  // the file's own page; costs a look at the page itself: ask only where needed
  kPagePresent = 8,
  kPageSwapped = 16,
  kPageZero = 32,  // the kernel's zero page
  kPageHuge = 64,
  kPageSoftDirty = 128,
  kPageGuard = 256,  // MADV_GUARD_INSTALL: touching it is a fault (Linux 6.15)
};

// What a word of /proc/self/pagemap says, in these categories. Words cannot tell the kernel's zero
// page from one that a forked child has as well: neither is ever kPageZero, and both count as
// written, like whatever is soft-dirty (bit 55; all that is new since clear_refs). A page that
// mremap moved together with its page table is not soft-dirty (Linux 6.1): the caller must know by
// other means that the mapping is still the same.
uint64_t categories_of(uint64_t word);

struct PageRegion {
  uint64_t start, end, categories;
};

// A page matches when it has all of `all`, none of `none`, and, unless both are 0, one of `any` or
// not one of `any_not`. (A category is asked for in one sense only.) Neighbours that agree in
// `tell` come as one region.
struct PageQuery {
  uint64_t all = 0, none = 0, any = 0, any_not = 0, tell = 0;
  bool protect = false;       // write-protects what matches, in the same step
  bool tracked_only = false;  // fails with EPERM where a mapping is not registered
};

// Guard pages and the kernel's zero page, which a copied child does not always have, hold nothing.
inline constexpr PageQuery kExistingPages{
    .none = kPageGuard | kPageZero, .any = kPagePresent | kPageSwapped, .tell = kPagePresent};
// Of these, written since they were protected.
inline constexpr PageQuery kWrittenPages{.all = kPageWritten,
                                         .none = kPageGuard | kPageZero,
                                         .any = kPagePresent | kPageSwapped,
                                         .tell = kPageWritten};

class Pagemap {
 public:
  enum class Source { kNone, kScan, kWords };
  // Returns false if there is no pagemap. Falls back to words where the kernel cannot scan.
  bool open(Source source = Source::kScan);
  void close();
  void forget() { fd_ = -1; }  // of memory that was cleared: nothing is open
  bool answers() const { return source_ != Source::kNone; }  // there is anything to be known
  bool by_words() const { return source_ == Source::kWords; }
  bool knows_guards() const { return guards_; }

  // Fills `out` with regions of [*start, end) and moves *start behind what was looked at; calls
  // again until *start == end. `room` is at least 1. Returns the number of regions or -errno.
  long scan(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out, size_t room);
  // Only protects: nothing is told.
  long protect(uint64_t start, uint64_t end, const PageQuery& query);

 private:
  long call(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out, size_t room);
  long scan_in_slices(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                      size_t room);
  long read_words(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out,
                  size_t room);
  int fd_ = -1;
  Source source_ = Source::kNone;
  bool guards_ = false;
};

}  // namespace gpuckpt
