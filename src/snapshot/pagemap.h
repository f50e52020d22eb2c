// Which pages of this process exist, are zero, or were written: PAGEMAP_SCAN (Linux 6.7), and one
// word per page of /proc/self/pagemap where the kernel has no such call. Raw system calls only; may
// be used while parked and in the copied child. Facts: linux/fs.h, fs/proc/task_mmu.c.
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

class Pagemap {
 public:
  bool open();  // false: /proc/self/pagemap is not there
  void close();
  bool scans() const { return scans_; }
  bool knows_guards() const { return guards_; }

  // Fills `out` with regions of [*start, end) and moves *start behind what was looked at; calls
  // again until *start == end. Returns the number of regions or -errno.
  long scan(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out, size_t room);
  // Only protects: nothing is told.
  long protect(uint64_t start, uint64_t end, const PageQuery& query);

  // Without PAGEMAP_SCAN: the words of `pages` pages from `address` on (bit 63 present, 62 swapped,
  // 61 file's or shared, 55 soft-dirty). Returns how many were read.
  uint64_t words(uint64_t address, uint64_t* to, uint64_t pages);

 private:
  long call(uint64_t* start, uint64_t end, const PageQuery& query, PageRegion* out, size_t room);
  int fd_ = -1;
  bool scans_ = false, guards_ = false;
};

}  // namespace gpuckpt
