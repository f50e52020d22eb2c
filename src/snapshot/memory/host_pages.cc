#include "snapshot/memory/host_pages.h"

#include <fcntl.h>

#include "base/address.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "gpuckpt/process_format.h"
#include "snapshot/memory/own_memory.h"

namespace gpuckpt {
namespace {

constexpr uint32_t kListRoom = 4u << 20;  // regions; memory is only used as far as they are

}  // namespace

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
      !guards.start(kListRoom) || !early.start(kListRoom) || !fresh.start(kListRoom))
    return false;
  range_memory = scratch_map(kRanges * (sizeof(PumpRange) + sizeof(Range)));
  ranges = reinterpret_cast<PumpRange*>(range_memory.data());
  tracked_ranges = reinterpret_cast<Range*>(ranges + kRanges);
  range_room = kRanges;
  return static_cast<bool>(range_memory);
}

void HostPages::finish() {
  smaps.finish();
  now.finish();
  written.finish();
  gone.finish();
  guards.finish();
  early.finish();
  fresh.finish();
  scratch_unmap(&range_memory);
  scratch_unmap(&copy);
  ranges = nullptr, tracked_ranges = nullptr;
  range_count = range_room = 0;
}

void HostPages::look_again() {
  bool keeps_from_children = false;
  Smaps& last = now.empty() ? smaps : now;
  for (const SmapsRange& r : last)
    keeps_from_children |= (r.flags & (process::kVmaDontFork | process::kVmaWipeOnFork)) != 0;
  if (!keeps_from_children) return;
  bool changed = false;
  {
    LineReader lines("/proc/thread-self/maps", last.lines(), Smaps::kLines);
    const SmapsRange* known = last.begin();
    MapsLine l;
    while (char* line = lines.next()) {
      if (!parse_maps_line(line, &l) || l.shared) continue;
      while (known != last.end() && known->start < l.start) ++known;
      changed |= known == last.end() || known->start != l.start || known->end != l.end;
    }
  }
  if (changed) now.read();
}

uint32_t HostPages::flags(uint64_t address) const {
  // `now` lacks one thing that `smaps` has: memory policies.
  return now.empty() ? smaps.flags(address)
                     : now.flags(address) | (smaps.flags(address) & kSmapsPolicy);
}

uint32_t HostPages::first_early(uint64_t address) const {
  uint32_t low = 0, high = early.count;
  while (low < high) {
    uint32_t mid = (low + high) / 2;
    if (early.at[mid].end <= address)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

void HostPages::count(uint64_t* written_bytes, uint64_t* same_bytes) const {
  *written_bytes = *same_bytes = 0;
  auto is_written = [&](uint64_t start, uint64_t end, uint64_t = 0) {
    *written_bytes += end - start;
    return true;
  };
  for (size_t i = 0; i < range_count; ++i)
    if (ranges[i].tracked)
      each_piece(ranges[i], is_written, is_written, [&](uint64_t start, uint64_t end) {
        *same_bytes += end - start;
        return true;
      });
}

bool HostPages::copy_pages() {
  uint64_t t0 = sys::now_us();
  copied = early_bytes;
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
  learn_copy_cost(copy_us, (copied - early_bytes) / kPage);
  return true;
}

}  // namespace gpuckpt
