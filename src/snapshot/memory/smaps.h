// What /proc/self/smaps says of the mappings and /proc/self/maps does not: flags, and how much
// memory is behind them. Read before any thread is parked, because the kernel walks every page
// table for it; mappings that came since are not in it.
//
// Owner: the Capture's HostPages. Threads: the I/O thread. Errors: mappings that there is no room
// for are unknown, and read in full.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/heap.h"

namespace gpuckpt {

struct SmapsRange {
  uint64_t start, end;
  uint32_t flags;                        // process::VmaFlags | SmapsFlags
  uint32_t permissions;                  // SmapsPermissions
  uint64_t anonymous_bytes, huge_bytes;  // present: private copies; of them in huge pages
  // Of any kind, those of the huge page pool included; and this process's share of what several
  // have mapped.
  uint64_t present_bytes, share_bytes;
};
enum SmapsFlags : uint32_t {
  kSmapsDevice = 1u << 30,  // VM_IO or VM_PFNMAP
  kSmapsHugetlb = 1u << 29,
  kSmapsMissing = 1u << 28,  // userfaultfd serves missing pages: never ours
  kSmapsProtect = 1u << 27,  // userfaultfd write protection: ours, or the application's
  kSmapsPolicy = 1u << 25,   // mbind
  kSmapsKey = 1u << 24,      // a memory protection key other than the usual ones
  kSmapsTracked = 1u << 26,  // set by the tracker: every write since the last snapshot is known
};
// With kSmapsHugetlb: the logarithm of the page size, in six bits.
inline constexpr int kSmapsHugeShift = 16;
enum SmapsPermissions : uint32_t { kSmapsShared = 1, kSmapsFile = 2, kSmapsWritable = 4 };

// Whether there is nothing in [start, end) at this moment, neither in memory nor swapped out. For
// reservations of terabytes, for which a kernel without PAGEMAP_SCAN would have to be asked about
// every page.
bool holds_nothing(uint64_t start, uint64_t end);
// Whether any shared memory mapped in [start, end) is swapped out at this moment.
bool holds_swapped(uint64_t start, uint64_t end);

class Smaps {
 public:
  bool start();  // allocates
  void read();
  void finish();
  SmapsRange* begin() { return range_; }
  SmapsRange* end() { return range_ + count_; }
  bool empty() const { return count_ == 0; }
  // The entry that holds `address`; null: there was none.
  const SmapsRange* find(uint64_t address) const;
  // Whether a mapping was exactly there.
  bool has_range(uint64_t start, uint64_t end) const {
    const SmapsRange* r = find(start);
    return r && r->start == start && r->end == end;
  }
  // Flags at `address`; 0 where nothing was mapped.
  uint32_t flags(uint64_t address) const {
    const SmapsRange* r = find(address);
    return r ? r->flags : 0;
  }
  // Marks what has a memory policy of its own.
  void find_policies();
  // Whether `at` is in a range with `flag`. *end becomes the address where the answer changes, at
  // most what it was.
  bool has(uint64_t at, uint64_t* end, uint32_t flag) const;

  // Room for lines of /proc/PID/maps, for one reader at a time; read() uses it as well.
  static constexpr size_t kLines = 65536;
  char* lines() { return lines_; }

 private:
  const SmapsRange* first_behind(uint64_t address) const;  // that ends behind it, or the end

  Region memory_;
  char* lines_ = nullptr;
  SmapsRange* range_ = nullptr;
  size_t count_ = 0;
};

}  // namespace gpuckpt
