#include "snapshot/memory/wide_scan.h"

#include <algorithm>

#include "base/address.h"
#include "snapshot/park/shared_work.h"

namespace gpuckpt {
namespace {

// Some 0.2 ms of looking: the last one to be taken is what the others wait for.
constexpr uint64_t kLeastSlice = 128ull << 20;
constexpr uint32_t kMostSlices = 1024;

// A part of all ranges one after another.
struct Slice {
  size_t range;
  uint64_t start, bytes;
  uint32_t count;  // of answers; kFull: there was no room for all
};
constexpr uint32_t kFull = ~0u;

struct Answer {
  size_t range;
  PageRegion region;  // of no bytes: the range failed
};

class Scan {
 public:
  Scan(Pagemap* pagemap, const PageQuery& query, const Range* ranges, size_t count)
      : pagemap_(pagemap), query_(query), ranges_(ranges), count_(count) {}

  // Calls take(range, regions, n) until it returns false; n is 0 for a range that failed.
  template <typename Take>
  void look_at(const Slice& slice, Take take) {
    constexpr size_t kRoom = 256;
    PageRegion found[kRoom];
    uint64_t at = slice.start, left = slice.bytes;
    for (size_t i = slice.range; left; at = ++i < count_ ? ranges_[i].start : 0) {
      const uint64_t end = std::min(ranges_[i].end, at + left);
      left -= end - at;
      while (at < end) {
        const long n = pagemap_->scan(&at, end, query_, found, kRoom);
        if (n != 0 && !take(i, found, n < 0 ? size_t{0} : static_cast<size_t>(n))) return;
        if (n < 0) break;
      }
    }
  }

  // Lists slices of about `bytes` each. Returns how many there are.
  uint32_t cut(uint64_t bytes, Slice* out) const {
    uint32_t slices = 0;
    uint64_t room = 0;  // in the last slice
    for (size_t i = 0; i < count_; ++i)
      for (uint64_t at = ranges_[i].start; at < ranges_[i].end;) {
        if (!room) out[slices++] = {i, at, 0, 0}, room = bytes;
        const uint64_t part = std::min(ranges_[i].end - at, room);
        out[slices - 1].bytes += part;
        room -= part, at += part;
      }
    return slices;
  }

 private:
  Pagemap* pagemap_;
  const PageQuery& query_;
  const Range* ranges_;
  size_t count_;
};

}  // namespace

void scan_widely(Pagemap* pagemap, const PageQuery& query, const Range* ranges, size_t count,
                 const Region& memory, void* context,
                 bool (*take)(void* context, size_t range, const PageRegion* region)) {
  Scan scan(pagemap, query, ranges, count);
  uint64_t all = 0;
  for (size_t i = 0; i < count; ++i) all += ranges[i].end - ranges[i].start;
  const auto give = [&](size_t range, const PageRegion* found, size_t n) {
    if (!n) return take(context, range, nullptr);
    for (size_t k = 0; k < n; ++k)
      if (!take(context, range, &found[k])) return false;
    return true;
  };
  const uint64_t slice_bytes = std::max(kLeastSlice, page_up(all / kMostSlices));
  if (all < 2 * slice_bytes || memory.bytes < (kMostSlices + 1) * sizeof(Slice)) {
    if (all) scan.look_at({0, ranges[0].start, all, 0}, give);
    return;
  }
  Slice* const slices = reinterpret_cast<Slice*>(memory.data());
  const uint32_t slice_count = scan.cut(slice_bytes, slices);
  Answer* const answers = reinterpret_cast<Answer*>(slices + slice_count);
  const uint64_t left = memory.bytes - slice_count * sizeof(Slice);
  const auto room =
      static_cast<uint32_t>(std::min<uint64_t>(left / sizeof(Answer) / slice_count, kFull - 1));
  share_work(slice_count, 1, [&](uint32_t begin, uint32_t) {
    Slice* const slice = &slices[begin];
    Answer* const own = answers + static_cast<size_t>(begin) * room;
    scan.look_at(*slice, [&](size_t range, const PageRegion* found, size_t n) {
      const size_t wanted = std::max<size_t>(n, 1);
      if (wanted > room - slice->count) return slice->count = kFull, false;
      if (!n) own[slice->count++] = {range, {}};
      for (size_t k = 0; k < n; ++k) own[slice->count++] = {range, found[k]};
      return true;
    });
  });
  for (uint32_t s = 0; s < slice_count; ++s) {
    const Answer* const own = answers + static_cast<size_t>(s) * room;
    if (slices[s].count == kFull) scan.look_at(slices[s], give);
    for (uint32_t k = 0; slices[s].count != kFull && k < slices[s].count; ++k)
      if (!give(own[k].range, &own[k].region, own[k].region.end ? 1 : 0)) return;
  }
}

}  // namespace gpuckpt
