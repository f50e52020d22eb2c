#include "snapshot/host_pages.h"

#include <fcntl.h>

#include "common/address.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/process_format.h"
#include "snapshot/state.h"
#include "snapshot/track.h"

namespace gpuckpt {
namespace {

constexpr uint32_t kListRoom = 4u << 20;  // regions; memory is only used as far as they are
constexpr int kPopulateWrite = 23;        // MADV_POPULATE_WRITE, Linux 5.14

// Nanoseconds per page, corrected by what is measured. A clone copies page table entries; what the
// copy-on-write faults cost afterwards is not in it.
uint64_t clone_ns_per_page = 95, copy_ns_per_page = 1000;
constexpr uint64_t kCloneFixedUs = 300;

uint64_t memory_available() {
  char text[2048];
  if (read_file("/proc/meminfo", text, sizeof(text)) <= 0) return 0;
  const char* s = status_field(text, "MemAvailable:");
  return scan_dec(&s) * 1024;
}

// Two sorted lists, one behind the other.
void sort_by_address(PageRegion* list, uint32_t n) {
  for (uint32_t gap = n / 2; gap; gap /= 2)
    for (uint32_t i = gap; i < n; ++i) {
      PageRegion r = list[i];
      uint32_t k = i;
      for (; k >= gap && list[k - gap].start > r.start; k -= gap) list[k] = list[k - gap];
      list[k] = r;
    }
}

void populate(const Region& r, uint64_t bytes) {
  if (!sys::failed(sys::call(SYS_madvise, static_cast<long>(r.start), static_cast<long>(bytes),
                             kPopulateWrite)))
    return;
  for (uint64_t at = 0; at < bytes; at += kPage) r.data()[at] = 0;
}

}  // namespace

void learn_clone_cost(uint64_t us, uint64_t pages) {
  if (pages > 4096 && us > kCloneFixedUs)
    clone_ns_per_page = (clone_ns_per_page + (us - kCloneFixedUs) * 1000 / pages) / 2;
}
void learn_copy_cost(uint64_t us, uint64_t pages) {
  if (pages > 1024) copy_ns_per_page = (copy_ns_per_page + us * 1000 / pages) / 2;
}

bool PageList::start(uint32_t entries) {
  memory = scratch_map(entries * sizeof(PageRegion));
  at = reinterpret_cast<PageRegion*>(memory.data());
  room = entries, count = 0;
  return static_cast<bool>(memory);
}
void PageList::finish() {
  scratch_unmap(&memory);
  at = nullptr;
  room = count = 0;
}

bool HostPages::start() {
  constexpr size_t kRanges = 66000;
  if (!smaps.start() || !now.start() || !written.start(kListRoom) || !gone.start(kListRoom) ||
      !guards.start(kListRoom))
    return false;
  range_memory = scratch_map(kRanges * sizeof(PumpRange));
  ranges = reinterpret_cast<PumpRange*>(range_memory.data());
  range_room = kRanges;
  return static_cast<bool>(range_memory);
}

void HostPages::finish() {
  smaps.finish();
  now.finish();
  written.finish();
  gone.finish();
  guards.finish();
  scratch_unmap(&range_memory);
  scratch_unmap(&copy);
  ranges = nullptr;
  range_count = range_room = 0;
}

void HostPages::look_again() {
  bool keeps_from_children = false;
  for (const SmapsRange& r : smaps)
    keeps_from_children |= (r.flags & (process::kVmaDontFork | process::kVmaWipeOnFork)) != 0;
  if (!keeps_from_children) return;
  static char buffer[65536];
  bool changed = false;
  {
    LineReader lines("/proc/thread-self/maps", buffer, sizeof(buffer));
    const SmapsRange* known = smaps.begin();
    MapsLine l;
    while (char* line = lines.next()) {
      if (!parse_maps_line(line, &l) || l.shared) continue;
      while (known != smaps.end() && known->start < l.start) ++known;
      changed |= known == smaps.end() || known->start != l.start || known->end != l.end;
    }
  }
  if (changed) now.read();
}

uint32_t HostPages::flags(uint64_t address) const {
  // What `smaps` has more than the kernel tells: policies.
  return now.empty() ? smaps.flags(address)
                     : now.flags(address) | (smaps.flags(address) & kSmapsPolicy);
}

void HostPages::make_plan(bool device_present) {
  uint64_t dirty = 0, loose = 0, huge = 0;
  plan.small_pages = 0;
  constexpr size_t kRoom = 4096;
  static PageRegion found[kRoom];
  for (const SmapsRange& r : smaps) {
    if (r.permissions & kSmapsShared) continue;
    plan.small_pages += (r.anonymous_bytes - r.huge_bytes) / kPage;
    huge += r.huge_bytes;
    if (!(r.flags & kSmapsTracked)) {
      loose += r.anonymous_bytes;
      continue;
    }
    for (uint64_t at = r.start; at < r.end;) {
      long n = pagemap.scan(&at, r.end,
                            {.all = kPageWritten,
                             .none = kPageGuard | kPageZero,
                             .any = kPagePresent | kPageSwapped,
                             .tell = kPageWritten},
                            found, kRoom);
      if (n < 0) break;
      for (long i = 0; i < n; ++i) dirty += found[i].end - found[i].start;
    }
  }
  plan.bytes = dirty + loose;
  plan.copy_us = plan.bytes / kPage * copy_ns_per_page / 1000;
  plan.clone_us = kCloneFixedUs + plan.small_pages * clone_ns_per_page / 1000 + (huge >> 21);
  const char* wish = library.config.copy;
  plan.copy = !device_present && plan.copy_us <= plan.clone_us;
  if (equal(wish, "copy")) plan.copy = true;
  if (equal(wish, "clone") || equal(wish, "stop")) plan.copy = false;
  if (!plan.copy) return;
  // What is written between now and the stop comes on top.
  uint64_t room = page_up(plan.bytes + plan.bytes / 4 + (1u << 20));
  uint64_t available = memory_available();
  if (available && room > available / 4 && !equal(wish, "copy")) {
    plan.copy = false;
    return;
  }
  copy = scratch_map(room);
  if (!copy) {
    plan.copy = false;
    return;
  }
  populate(copy, room);
}

bool HostPages::find_written(PumpRange* r) {
  const PageQuery dirty{.all = kPageWritten,
                        .none = kPageGuard | kPageZero,
                        .any = kPagePresent | kPageSwapped,
                        .tell = kPageWritten,
                        .protect = true,
                        .tracked_only = true};
  // Anonymous memory without a page is zero, and so is the kernel's zero page, which a copied child
  // does not always have: neither is ever stored.
  const PageQuery absent{.none = kPagePresent | kPageSwapped, .tell = kPagePresent};
  const PageQuery nothing{.any = kPageZero | kPageGuard, .tell = kPageGuard};
  r->written_begin = written.count;
  r->gone_begin = gone.count;
  struct {
    const PageQuery* query;
    PageList* list;
  } const passes[] = {{&dirty, &written}, {&absent, &gone}, {&nothing, &gone}};
  for (const auto& pass : passes) {
    for (uint64_t at = r->start; at < r->end;) {
      PageList* l = pass.list;
      long n = l->count == l->room
                   ? -1
                   : pagemap.scan(&at, r->end, *pass.query, l->at + l->count, l->room - l->count);
      if (n < 0) {
        written.count = r->written_begin;
        gone.count = r->gone_begin;
        return false;
      }
      l->count += static_cast<uint32_t>(n);
    }
  }
  r->written_end = written.count;
  r->gone_end = gone.count;
  for (uint32_t i = r->gone_begin; i < gone.count && guards.count < guards.room; ++i)
    if (gone.at[i].categories & kPageGuard) guards.at[guards.count++] = gone.at[i];
  sort_by_address(gone.at + r->gone_begin, gone.count - r->gone_begin);
  r->resolved = true;
  uint64_t other = 0;
  for (uint32_t i = r->written_begin; i < r->written_end; ++i)
    other += written.at[i].end - written.at[i].start;
  written_bytes += other;
  for (uint32_t i = r->gone_begin; i < r->gone_end; ++i) other += gone.at[i].end - gone.at[i].start;
  same_bytes += r->end - r->start - other;
  return true;
}

// Of untracked ranges. They look like missing pages everywhere else. (Linux 6.13 has them, 6.15
// tells.)
void HostPages::find_guards(const PumpRange& r) {
  if (!pagemap.knows_guards()) return;
  for (uint64_t at = r.start; at < r.end && guards.count < guards.room;) {
    long n = pagemap.scan(&at, r.end, {.any = kPageGuard, .tell = kPageGuard},
                          guards.at + guards.count, guards.room - guards.count);
    if (n < 0) return;
    guards.count += static_cast<uint32_t>(n);
  }
}

void HostPages::find_written() {
  uint64_t t0 = sys::now_us();
  for (size_t i = 0; i < range_count; ++i) {
    PumpRange& r = ranges[i];
    if (r.tracked) {
      tracker.give_up_base();
      r.tracked = find_written(&r);
    }
    if (!r.tracked) find_guards(r);
  }
  scan_us = sys::now_us() - t0;
}

// The pages of an untracked range, all of them.
bool HostPages::resolve(PumpRange* r) {
  const uint64_t none = r->file ? kPageGuard | kPageZero | kPageFile : kPageGuard | kPageZero;
  r->written_begin = written.count;
  for (uint64_t at = r->start; at < r->end;) {
    if (written.count == written.room) return false;
    long n = pagemap.scan(&at, r->end,
                          {.none = none, .any = kPagePresent | kPageSwapped, .tell = kPagePresent},
                          written.at + written.count, written.room - written.count);
    if (n < 0) return false;
    written.count += static_cast<uint32_t>(n);
  }
  r->written_end = written.count;
  r->resolved = true;
  return true;
}

bool HostPages::copy_pages() {
  uint64_t t0 = sys::now_us();
  copied = 0;
  int memory = -1;
  for (size_t i = 0; i < range_count; ++i) {
    PumpRange& r = ranges[i];
    if (!r.resolved && !resolve(&r)) return false;
    for (uint32_t k = r.written_begin; k < r.written_end; ++k) {
      const PageRegion& p = written.at[k];
      const uint64_t n = p.end - p.start;
      if (n > copy.bytes - copied) {
        if (memory >= 0) sys::close(memory);
        return false;
      }
      if (r.readable) {
        __builtin_memcpy(copy.data() + copied, reinterpret_cast<const void*>(p.start), n);
      } else {
        if (memory < 0) memory = sys::open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
        if (memory < 0 ||
            sys::pread(memory, copy.data() + copied, n, p.start) != static_cast<long>(n)) {
          if (memory >= 0) sys::close(memory);
          return false;
        }
      }
      copied += n;
    }
  }
  if (memory >= 0) sys::close(memory);
  has_copy = true;
  copy_us = sys::now_us() - t0;
  learn_copy_cost(copy_us, copied / kPage);
  return true;
}

}  // namespace gpuckpt
