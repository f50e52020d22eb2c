#include "restore/memory/common_pages.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "gpuckpt/wire.h"
#include "restore/image/tree.h"

namespace gpuckpt::restore {

using namespace process;
using store::NamedExtent;

namespace {

// With fewer shared pages than this the other way of starting processes is not worth its cost.
constexpr uint64_t kWorthIt = 1 << 20, kWorthARegion = 64 << 10;
constexpr size_t kMostRegions = 1000;  // each is a line of /proc/self/maps that the launcher reads
// Mappings that fork does not pass on unchanged, or that are mapped in another way.
constexpr uint32_t kNever =
    kVmaGrowsDown | kVmaDontFork | kVmaWipeOnFork | kVmaDroppable | kVmaHugetlb;
// The flags that a region is mapped with from the beginning.
constexpr uint32_t kOfRegion = kVmaNoReserve | kVmaHugePage | kVmaNoHugePage;

struct Mapping {
  AddressRange range;
  uint32_t flags;
};

// The mappings of one process, by address, whose pages can be shared.
std::vector<Mapping> mappings_of(const Image& image) {
  std::vector<Mapping> out;
  for (const auto& [v, path] : image.vmas)
    if (v.kind == kVmaAnonymous && !(v.flags & kNever))
      out.push_back({{v.start, v.end}, v.flags & kOfRegion});
  std::sort(out.begin(), out.end(),
            [](const Mapping& a, const Mapping& b) { return a.range.start < b.range.start; });
  return out;
}

// The stored pieces with data in these mappings, in the order of their addresses.
template <typename Each>
void each_piece(const Member& m, const std::vector<Mapping>& mappings, Each each) {
  auto in = mappings.begin();
  for (const NamedExtent& e : m.reader->named_extents(wire::kSpaceHost)) {
    while (in != mappings.end() && in->range.end <= e.address) ++in;
    if (in == mappings.end()) return;
    if (!e.zero && in->range.start <= e.address && e.address + e.length <= in->range.end)
      each(e, in->flags);
  }
}

// The contents at an address: the first ones found, and others that were found there.
struct Contents {
  std::array<uint8_t, 16> name;
  uint32_t flags;  // of the mapping
  uint32_t member, votes;
};
struct Place {
  uint64_t address;
  uint32_t length;
  Contents first, other;

  const Contents& best() const { return other.votes > first.votes ? other : first; }
  bool is_common() const { return best().votes > 1; }
  void take(const NamedExtent& e, uint32_t flags, uint32_t member) {
    if (e.length != length) return;
    if (e.name == first.name && flags == first.flags)
      ++first.votes;
    else if (other.votes && e.name == other.name && flags == other.flags)
      ++other.votes;
    else if (other.votes < 2)
      other = {e.name, flags, member, 1};
  }
};

std::vector<Place> find_places(const Tree& tree,
                               const std::vector<std::vector<Mapping>>& mappings) {
  std::vector<Place> places;
  for (uint32_t i = 0; i < tree.members.size(); ++i) {
    std::vector<Place> fresh;
    auto at = places.begin();
    each_piece(*tree.members[i], mappings[i], [&](const NamedExtent& e, uint32_t flags) {
      while (at != places.end() && at->address < e.address) ++at;
      if (at != places.end() && at->address == e.address)
        at->take(e, flags, i);
      else
        fresh.push_back({e.address, static_cast<uint32_t>(e.length), {e.name, flags, i, 1}, {}});
    });
    const auto middle = static_cast<std::ptrdiff_t>(places.size());
    places.insert(places.end(), fresh.begin(), fresh.end());
    std::inplace_merge(places.begin(), places.begin() + middle, places.end(),
                       [](const Place& a, const Place& b) { return a.address < b.address; });
  }
  std::erase_if(places, [](const Place& p) { return !p.is_common(); });
  return places;
}

void add(std::vector<AddressRange>* to, uint64_t start, uint64_t end) {
  if (!to->empty() && to->back().end == start)
    to->back().end = end;
  else
    to->push_back({start, end});
}

struct Candidate {
  CommonRegion region;
  uint64_t bytes, saved;  // of pages in common; that need not be there for each process
};

// Mappings of all processes that have shared pages; those of one kind that overlap are joined.
std::vector<Candidate> find_candidates(std::vector<Mapping> mappings) {
  std::sort(mappings.begin(), mappings.end(), [](const Mapping& a, const Mapping& b) {
    return std::pair(a.flags, a.range.start) < std::pair(b.flags, b.range.start);
  });
  std::vector<Candidate> out;
  for (const Mapping& m : mappings) {
    CommonRegion* last = out.empty() ? nullptr : &out.back().region;
    if (last && m.flags == last->flags && m.range.start < last->range.end) {
      last->range.end = std::max(last->range.end, m.range.end);
    } else {
      out.push_back({{m.range, m.flags}, 0, 0});
    }
  }
  return out;
}

// The regions that are worth it, the better one where two overlap; not too many.
std::vector<CommonRegion> choose_regions(std::vector<Candidate> candidates,
                                         const std::vector<Place>& places) {
  for (Candidate& c : candidates) {
    const AddressRange& r = c.region.range;
    auto p = std::lower_bound(places.begin(), places.end(), r.start,
                              [](const Place& x, uint64_t a) { return x.address < a; });
    for (; p != places.end() && p->address < r.end; ++p) {
      if (p->best().flags != c.region.flags) continue;
      c.bytes += p->length;
      c.saved += p->length * (p->best().votes - 1);
    }
  }
  std::erase_if(candidates, [](const Candidate& c) { return c.bytes < kWorthARegion; });
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.saved > b.saved; });
  std::map<uint64_t, CommonRegion> chosen;  // by where they begin
  uint64_t bytes = 0;
  for (const Candidate& c : candidates) {
    const auto next = chosen.lower_bound(c.region.range.start);
    const bool behind = next == chosen.end() || next->first >= c.region.range.end;
    const bool before =
        next == chosen.begin() || std::prev(next)->second.range.end <= c.region.range.start;
    if (!behind || !before || chosen.size() >= kMostRegions) continue;
    chosen.emplace(c.region.range.start, c.region);
    bytes += c.bytes;
  }
  std::vector<CommonRegion> out;
  for (const auto& [start, region] : chosen)
    if (bytes >= kWorthIt) out.push_back(region);
  return out;
}

bool lies_in(const Mapping& m, const std::vector<CommonRegion>& regions) {
  auto r = std::upper_bound(
      regions.begin(), regions.end(), m.range.start,
      [](uint64_t a, const CommonRegion& region) { return a < region.range.start; });
  return r != regions.begin() && (--r)->range.end >= m.range.end && r->flags == m.flags;
}

// The parts of process `i` in the regions; all of `mappings` are inside regions.
CommonOfMember share_of(const Member& m, uint32_t i, const std::vector<Mapping>& mappings,
                        const std::vector<Place>& places) {
  CommonOfMember out;
  std::vector<AddressRange> data, of_regions;
  auto p = places.begin();
  each_piece(m, mappings, [&](const NamedExtent& e, uint32_t) {
    while (p != places.end() && p->address < e.address) ++p;
    if (p == places.end() || p->address != e.address) return;
    add(&data, e.address, e.address + std::max<uint64_t>(e.length, p->length));
    if (p->length != e.length || p->best().name != e.name) return;
    add(&out.equal, e.address, e.address + e.length);
    if (p->best().member == i) add(&out.source, e.address, e.address + e.length);
  });
  auto equal = out.equal.begin();
  for (const Mapping& x : mappings) {
    while (equal != out.equal.end() && equal->end <= x.range.start) ++equal;
    if (equal != out.equal.end() && equal->start < x.range.end) out.inherited.push_back(x.range);
  }
  auto in = out.inherited.begin();
  for (const Place& place : places) {
    while (in != out.inherited.end() && in->end <= place.address) ++in;
    if (in != out.inherited.end() && in->start <= place.address)
      add(&of_regions, place.address, place.address + place.length);
  }
  out.foreign = without(of_regions, data);
  return out;
}

}  // namespace

uint64_t bytes_of(const std::vector<AddressRange>& ranges) {
  uint64_t sum = 0;
  for (const AddressRange& r : ranges) sum += r.end - r.start;
  return sum;
}

std::vector<AddressRange> without(const std::vector<AddressRange>& from,
                                  const std::vector<AddressRange>& what) {
  std::vector<AddressRange> out;
  auto hole = what.begin();
  for (AddressRange r : from) {
    while (hole != what.end() && hole->end <= r.start) ++hole;
    for (auto h = hole; h != what.end() && h->start < r.end; ++h) {
      if (r.start < h->start) out.push_back({r.start, h->start});
      r.start = std::min(r.end, h->end);
    }
    if (r.start < r.end) out.push_back(r);
  }
  return out;
}

uint64_t CommonPages::saved() const {
  uint64_t bytes = 0;
  for (const CommonOfMember& m : members) bytes += bytes_of(m.equal) - bytes_of(m.source);
  return bytes;
}

bool common_pages_wanted() {
  const char* v = getenv("GPUCKPT_COMMON_PAGES");
  return !(v && strcmp(v, "0") == 0);
}

CommonPages find_common_pages(const Tree& tree) {
  CommonPages out;
  if (tree.members.size() < 2) return out;
  std::vector<std::vector<Mapping>> mappings;
  for (const auto& m : tree.members) mappings.push_back(mappings_of(m->image));
  std::vector<Place> places = find_places(tree, mappings);
  std::vector<Mapping> with_common;
  for (const auto& of_one : mappings) {
    auto p = places.begin();
    for (const Mapping& m : of_one) {
      while (p != places.end() && p->address < m.range.start) ++p;
      if (p != places.end() && p->address < m.range.end) with_common.push_back(m);
    }
  }
  out.regions = choose_regions(find_candidates(with_common), places);
  if (out.regions.empty()) return out;
  for (auto& of_one : mappings)
    std::erase_if(of_one, [&](const Mapping& m) { return !lies_in(m, out.regions); });
  // Pages that are read as a process's must be inside a region of it as well.
  if (!std::all_of(with_common.begin(), with_common.end(),
                   [&](const Mapping& m) { return lies_in(m, out.regions); }))
    places = find_places(tree, mappings);
  for (uint32_t i = 0; i < tree.members.size(); ++i)
    out.members.push_back(share_of(*tree.members[i], i, mappings[i], places));
  return out;
}

}  // namespace gpuckpt::restore
