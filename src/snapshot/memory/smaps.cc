#include "snapshot/memory/smaps.h"

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/process_format.h"

namespace gpuckpt {
namespace {

using namespace process;

constexpr size_t kRoom = 66000;

uint32_t flags_of(const char* s) {
  static const struct {
    const char* name;
    uint32_t flag;
  } names[] = {{"gd", kVmaGrowsDown},  {"nr", kVmaNoReserve},  {"dc", kVmaDontFork},
               {"wf", kVmaWipeOnFork}, {"hg", kVmaHugePage},   {"nh", kVmaNoHugePage},
               {"lo", kVmaLocked},     {"dd", kVmaDontDump},   {"mg", kVmaMergeable},
               {"dp", kVmaDroppable},  {"io", kSmapsDevice},   {"pf", kSmapsDevice},
               {"ht", kSmapsHugetlb},  {"um", kSmapsMissing},  {"ui", kSmapsMissing},
               {"uw", kSmapsProtect},  {"sr", kVmaSequential}, {"rr", kVmaRandom},
               {"mw", kVmaMayWrite},   {"sl", kVmaSealed},     {"lf", kVmaLockedOnFault}};
  uint32_t flags = 0;
  while (*s) {
    while (*s == ' ') ++s;
    if (!s[0] || !s[1]) break;
    for (const auto& n : names)
      if (s[0] == n.name[0] && s[1] == n.name[1]) flags |= n.flag;
    s += 2;
  }
  return flags;
}

uint64_t kilobytes(const char* s) {
  while (*s == ' ') ++s;
  return scan_dec(&s) * 1024;
}

}  // namespace

namespace {

// How much is in memory and how much is swapped out of [start, end), by whole mappings, and how
// much of it is mapped at all.
struct Presence {
  uint64_t resident, swapped, mapped;
};
Presence presence(uint64_t start, uint64_t end) {
  char buffer[16384];
  LineReader lines("/proc/thread-self/smaps", buffer, sizeof(buffer));
  bool inside = false;
  Presence p{};
  while (char* line = lines.next()) {
    MapsLine l;
    if (starts_with(line, "Rss:")) {
      if (inside) p.resident += kilobytes(line + 4);
    } else if (starts_with(line, "Swap:")) {
      if (inside) p.swapped += kilobytes(line + 5);
    } else if (parse_maps_line(line, &l)) {
      inside = l.start < end && l.end > start;
      if (inside) p.mapped += (l.end < end ? l.end : end) - (l.start > start ? l.start : start);
    }
  }
  return p;
}

}  // namespace

bool holds_nothing(uint64_t start, uint64_t end) {
  const Presence p = presence(start, end);
  return p.mapped == end - start && !p.resident && !p.swapped;
}

bool holds_swapped(uint64_t start, uint64_t end) { return presence(start, end).swapped; }

bool Smaps::start() {
  memory_ = scratch_map(kRoom * sizeof(SmapsRange) + kLines);
  range_ = reinterpret_cast<SmapsRange*>(memory_.data());
  lines_ = memory_.data() + kRoom * sizeof(SmapsRange);
  count_ = 0;
  return static_cast<bool>(memory_);
}

void Smaps::read() {
  count_ = 0;
  LineReader lines("/proc/thread-self/smaps", lines_, kLines);
  SmapsRange now{};
  bool key = false, executed_only = false;
  uint64_t page_bytes = 0;
  while (char* line = lines.next()) {
    if (starts_with(line, "VmFlags:")) {
      now.flags = flags_of(line + 8) | (key ? +kSmapsKey : 0u);
      if (now.permissions & kSmapsShared && !(now.flags & kVmaMayWrite))
        now.flags |= kVmaNeverWrite;
      if (now.flags & kSmapsHugetlb && page_bytes)
        now.flags |= static_cast<uint32_t>(__builtin_ctzll(page_bytes)) << kSmapsHugeShift;
      if (count_ < kRoom) range_[count_++] = now;
    } else if (starts_with(line, "Anonymous:")) {
      now.anonymous_bytes = kilobytes(line + 10);
    } else if (starts_with(line, "Rss:")) {
      now.present_bytes = kilobytes(line + 4);
    } else if (starts_with(line, "Pss:")) {
      now.share_bytes = kilobytes(line + 4);
    } else if (starts_with(line, "Shared_Hugetlb:")) {
      now.present_bytes += kilobytes(line + 15);
    } else if (starts_with(line, "Private_Hugetlb:")) {
      const uint64_t own = kilobytes(line + 16);
      now.present_bytes += own, now.share_bytes += own;
    } else if (starts_with(line, "KernelPageSize:")) {
      page_bytes = kilobytes(line + 15);
    } else if (starts_with(line, "ProtectionKey:")) {
      // Memory that may only be executed has one by itself.
      key = kilobytes(line + 14) && !executed_only;
    } else if (starts_with(line, "AnonHugePages:")) {
      now.huge_bytes = kilobytes(line + 14);
    } else if ((line[0] >= '0' && line[0] <= '9') || (line[0] >= 'a' && line[0] <= 'f')) {
      MapsLine l;
      if (!parse_maps_line(line, &l)) continue;
      now = {l.start, l.end, 0, 0, 0, 0, 0, 0};
      key = false;
      executed_only = l.exec && !l.read && !l.write;
      now.permissions = (l.shared ? +kSmapsShared : 0u) | (l.object ? +kSmapsFile : 0u) |
                        (l.write ? +kSmapsWritable : 0u);
    }
  }
}

void Smaps::find_policies() {
  for (SmapsRange& r : *this) {
    int mode = 0;
    if (!(r.flags & kSmapsDevice) &&
        !sys::failed(sys::call(SYS_get_mempolicy, sys::ptr(&mode), 0, 0, static_cast<long>(r.start),
                               2 /* MPOL_F_ADDR */)) &&
        mode)
      r.flags |= kSmapsPolicy;
  }
}

void Smaps::finish() {
  scratch_unmap(&memory_);
  range_ = nullptr;
  count_ = 0;
}

const SmapsRange* Smaps::first_behind(uint64_t address) const {
  size_t low = 0, high = count_;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (range_[mid].end <= address)
      low = mid + 1;
    else
      high = mid;
  }
  return &range_[low];
}

const SmapsRange* Smaps::find(uint64_t address) const {
  const SmapsRange* r = first_behind(address);
  return r != range_ + count_ && r->start <= address ? r : nullptr;
}

bool Smaps::has(uint64_t at, uint64_t* end, uint32_t flag) const {
  const SmapsRange *r = first_behind(at), *last = range_ + count_;
  if (r != last && r->start <= at && r->flags & flag) {
    uint64_t to = r->end;
    while (to < *end && ++r != last && r->start == to && r->flags & flag) to = r->end;
    if (to < *end) *end = to;
    return true;
  }
  while (r != last && r->start < *end && (r->start < at || !(r->flags & flag))) ++r;
  if (r != last && r->start < *end) *end = r->start;
  return false;
}

}  // namespace gpuckpt
