// What is found out of pages while all threads are parked: which were written, which are gone,
// which are guard pages.

#include "base/syscall.h"
#include "snapshot/memory/host_pages.h"
#include "snapshot/memory/track.h"
#include "snapshot/memory/wide_scan.h"

namespace gpuckpt {

bool HostPages::find_written(PumpRange* r) {
  PageQuery query = kWrittenPages;
  query.protect = query.tracked_only = tracker.protects_ranges();
  r->written_begin = written.count;
  r->gone_begin = gone.count;
  for (uint64_t at = r->start; at < r->end;) {
    long n = written.count == written.room
                 ? -1
                 : pagemap.scan(&at, r->end, query, written.at + written.count,
                                written.room - written.count);
    if (n < 0) return false;
    written.count += static_cast<uint32_t>(n);
  }
  // Anonymous memory without a page is zero, and neither that nor the zero page is ever stored.
  const PageQuery nothing{.any = kPageZero | kPageGuard,
                          .any_not = kPagePresent,
                          .tell = kPagePresent | kPageSwapped | kPageGuard};
  for (uint64_t at = r->start; at < r->end;) {
    const uint32_t begin = gone.count;
    long n = gone.count == gone.room
                 ? -1
                 : pagemap.scan(&at, r->end, nothing, gone.at + gone.count, gone.room - gone.count);
    if (n < 0) return false;
    for (uint32_t i = begin; i < begin + n; ++i) {
      const PageRegion& p = gone.at[i];
      if (p.categories & kPageGuard && guards.count < guards.room) guards.at[guards.count++] = p;
      if (p.categories & kPageGuard || !(p.categories & kPageSwapped)) gone.at[gone.count++] = p;
    }
  }
  r->written_end = written.count;
  r->gone_end = gone.count;
  return r->resolved = true;
}

// One look at the tracked ranges that tells both what was written and what is gone, on all
// processors. It does not protect: what was written since the last round is little, and is left to
// count as written in the next snapshot, too, whose first round protects it. False: there is more
// of it, or no room, and nothing is found out.
bool HostPages::find_changed() {
  const PageQuery changed{
      .any = kPageWritten | kPageZero | kPageGuard,
      .any_not = kPagePresent,
      .tell = kPageWritten | kPagePresent | kPageSwapped | kPageZero | kPageGuard,
      .tracked_only = tracker.protects_ranges()};
  size_t count = 0;
  for (size_t i = 0; i < range_count; ++i)
    if (ranges[i].tracked) tracked_ranges[count++] = {ranges[i].start, ranges[i].end};
  if (!count) return true;
  const uint32_t written_before = written.count, gone_before = gone.count,
                 guards_before = guards.count;
  uint32_t guards_begin = guards.count;
  PumpRange* r = ranges;
  const auto begin = [&] {
    while (!r->tracked) ++r;
    r->written_begin = written.count, r->gone_begin = gone.count, guards_begin = guards.count;
  };
  const auto end = [&] {
    if (r->tracked)
      r->written_end = written.count, r->gone_end = gone.count, r->resolved = true;
    else
      written.count = r->written_begin, gone.count = r->gone_begin, guards.count = guards_begin;
  };
  const auto add = [](PageList* to, uint32_t first, const PageRegion& p) {
    if (to->count > first && to->at[to->count - 1].end == p.start)
      to->at[to->count - 1].end = p.end;
    else if (to->count == to->room)
      return false;
    else
      to->at[to->count++] = p;
    return true;
  };
  size_t number = 0;
  bool room = true;
  begin();
  scan_widely(&pagemap, changed, tracked_ranges, count, fresh.memory,
              [&](size_t which, const PageRegion* p) {
                for (; number < which; ++number) end(), ++r, begin();
                if (!p) r->tracked = false;
                if (!r->tracked) return true;
                const uint64_t c = p->categories;
                if (c & kPageGuard) room &= add(&guards, guards_begin, *p);
                if (c & (kPageGuard | kPageZero) || !(c & (kPagePresent | kPageSwapped)))
                  room &= add(&gone, r->gone_begin, *p);
                else if (c & kPageWritten)
                  room &= add(&written, r->written_begin, *p);
                return room;
              });
  if (room)
    for (; number < count; ++number)
      if (end(), number + 1 < count) ++r, begin();
  if (room && protect_little(written_before)) return true;
  for (size_t i = 0; i < range_count; ++i) ranges[i].resolved &= !ranges[i].tracked;
  written.count = written_before, gone.count = gone_before, guards.count = guards_before;
  return false;
}

// Protects what was written if that is a few regions. False: it is so much that it should not be
// copied by the next snapshot again.
bool HostPages::protect_little(uint32_t first) {
  constexpr uint32_t kFew = 64;
  if (!tracker.protects_ranges()) return true;
  uint64_t bytes = 0;
  for (uint32_t i = first; i < written.count; ++i) bytes += written.at[i].end - written.at[i].start;
  if (written.count - first > kFew) return bytes <= kLittle;
  PageQuery query = kWrittenPages;
  query.tracked_only = true;
  tracker.give_up_base();
  for (uint32_t i = first; i < written.count; ++i)
    pagemap.protect(written.at[i].start, written.at[i].end, query);
  return true;
}

// They look like missing pages everywhere else. (Linux 6.13 has them, 6.15
// tells.)
void HostPages::find_guards(uint64_t start, uint64_t end) {
  if (!pagemap.knows_guards()) return;
  for (uint64_t at = start; at < end && guards.count < guards.room;) {
    long n = pagemap.scan(&at, end, {.any = kPageGuard, .tell = kPageGuard},
                          guards.at + guards.count, guards.room - guards.count);
    if (n < 0) return;
    guards.count += static_cast<uint32_t>(n);
  }
}

// The pages and the guard pages of the ranges [first, end), none of which is tracked, by one look
// at all that lies between their ends. False: nothing was found out.
bool HostPages::resolve_together(size_t first, size_t end) {
  constexpr size_t kRoom = 512;
  PageRegion found[kRoom];
  bool files = false;
  for (size_t i = first; i < end; ++i) files |= ranges[i].file;
  // (Pages of anonymous memory are never the file's own.)
  const PageQuery query{.none = files ? kPageZero | kPageFile : uint64_t{kPageZero},
                        .any = kPagePresent | kPageSwapped | kPageGuard,
                        .tell = kPagePresent | kPageGuard};
  const uint32_t written_before = written.count, guards_before = guards.count;
  const uint64_t until = ranges[end - 1].end;
  size_t i = first;
  ranges[i].written_begin = written.count;
  const auto next_range = [&] {
    ranges[i].written_end = written.count;
    if (++i < end) ranges[i].written_begin = written.count;
  };
  long n = 0;
  for (uint64_t at = ranges[first].start; at < until && n >= 0;) {
    n = pagemap.scan(&at, until, query, found, kRoom);
    for (long k = 0; k < n && i < end; ++k) {
      PageRegion piece = found[k];
      while (i < end && ranges[i].end <= piece.start) next_range();
      // A region can go on in the next range, and over memory that is in none.
      for (; i < end && ranges[i].start < piece.end; next_range()) {
        const bool goes_on = ranges[i].end < piece.end;
        PageRegion part = piece;
        if (part.start < ranges[i].start) part.start = ranges[i].start;
        if (goes_on) part.end = ranges[i].end;
        PageList* to = part.categories & kPageGuard ? &guards : &written;
        if (to->count == to->room) n = -1;
        if (n >= 0) to->at[to->count++] = part;
        if (!goes_on) break;
      }
    }
  }
  if (n < 0) {
    written.count = written_before, guards.count = guards_before;
    return false;
  }
  while (i < end) next_range();
  for (size_t k = first; k < end; ++k) ranges[k].resolved = true;
  return true;
}

// Ranges that are not tracked: a process has some fifty small ones, the pieces of its libraries
// above all, and to look at each of them takes longer than to look at their pages. Returns the
// number of the range behind those that were looked at. Large ones are only asked for guard pages:
// the copied child looks at them.
size_t HostPages::resolve_neighbours(size_t first) {
  constexpr uint64_t kNear = 64ull << 20;
  if (ranges[first].tracked) return first + 1;
  size_t end = first;
  if (!pagemap.by_words())
    while (end < range_count && !ranges[end].tracked &&
           ranges[end].end - ranges[first].start <= kNear)
      ++end;
  if (end > first && resolve_together(first, end)) return end;
  if (end == first) end = first + 1;
  for (size_t i = first; i < end; ++i) find_guards(ranges[i].start, ranges[i].end);
  return end;
}

void HostPages::find_written() {
  uint64_t t0 = sys::now_us();
  const bool known = tracker.bits_are_ours(&pagemap);
  for (size_t i = 0; i < range_count; ++i) ranges[i].tracked &= known;
  const bool little = plan.copy || !tracker.protects_ranges();
  if (!little || !find_changed())
    for (size_t i = 0; i < range_count; ++i) {
      PumpRange& r = ranges[i];
      if (!r.tracked) continue;
      tracker.give_up_base();
      const uint32_t w = written.count, g = gone.count, k = guards.count;
      r.tracked = find_written(&r);
      if (!r.tracked) written.count = w, gone.count = g, guards.count = k;
    }
  for (size_t i = 0; i < range_count;) i = resolve_neighbours(i);
  tracker.renew();
  scan_us = sys::now_us() - t0;
}

// The pages of an untracked range, all of them.
bool HostPages::resolve(PumpRange* r) {
  const uint64_t none = r->file ? kPageGuard | kPageZero | kPageFile : kPageGuard | kPageZero;
  r->written_begin = written.count;
  for (uint64_t at = skip(*r, pagemap) ? r->end : r->start; at < r->end;) {
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

}  // namespace gpuckpt
