// Fear: pages that several processors look at are told twice, not at all, or in another order; or
// those behind a place where there is no room for answers.
#include "snapshot/memory/wide_scan.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

namespace {

using namespace gpuckpt;

constexpr uint64_t kPageBytes = 4096, kAll = 1ull << 30;
constexpr PageQuery kPresent{.any = kPagePresent, .tell = kPagePresent};

struct Told {
  size_t range;
  uint64_t start, end;
  bool operator==(const Told&) const = default;
};

// Memory in which some pages exist, more of them in its second half.
class Sparse {
 public:
  Sparse() {
    at_ = static_cast<char*>(mmap(nullptr, kAll, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    REQUIRE(at_ != MAP_FAILED);
    REQUIRE(madvise(at_, kAll, MADV_NOHUGEPAGE) == 0);
    srand(1);
    for (uint64_t i = 0, pages = kAll / kPageBytes; i < pages;
         i += 1 + static_cast<uint64_t>(rand()) % (i < pages / 2 ? 4000 : 40))
      at_[i * kPageBytes] = 1;
    REQUIRE(map.open());
  }
  ~Sparse() {
    map.close();
    munmap(at_, kAll);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  uint64_t start() const { return reinterpret_cast<uint64_t>(at_); }
  std::vector<Told> one_by_one(const std::vector<Range>& ranges) {
    std::vector<Told> out;
    for (size_t i = 0; i < ranges.size(); ++i)
      for (uint64_t at = ranges[i].start; at < ranges[i].end;) {
        PageRegion found[100];
        const long n = map.scan(&at, ranges[i].end, kPresent, found, std::size(found));
        REQUIRE(n >= 0);
        for (long k = 0; k < n; ++k) add(&out, {i, found[k].start, found[k].end});
      }
    return out;
  }
  static void add(std::vector<Told>* to, const Told& t) {
    if (!to->empty() && to->back().range == t.range && to->back().end == t.start)
      to->back().end = t.end;
    else
      to->push_back(t);
  }

  Pagemap map;

 private:
  char* at_;
};

std::vector<Told> widely(Sparse* memory, const std::vector<Range>& ranges, uint64_t room) {
  std::vector<Told> out;
  const Region answers = scratch_map(room);
  REQUIRE(answers);
  scan_widely(&memory->map, kPresent, ranges.data(), ranges.size(), answers,
              [&](size_t range, const PageRegion* r) {
                REQUIRE(r);
                Sparse::add(&out, {range, r->start, r->end});
                return true;
              });
  Region done = answers;
  scratch_unmap(&done);
  return out;
}

}  // namespace

TEST_CASE("many processors tell what one tells, in order, with whatever room") {
  Sparse memory;
  std::vector<Range> many;
  for (uint64_t at = 0; at + (3 << 20) < kAll; at += 5 << 20)
    many.push_back({memory.start() + at, memory.start() + at + (3 << 20)});
  for (const std::vector<Range>& ranges :
       {std::vector<Range>{{memory.start(), memory.start() + kAll}}, many}) {
    const auto expected = memory.one_by_one(ranges);
    REQUIRE(expected.size() > 3000);
    for (const uint64_t room : {4096ull, 64ull << 10, 256ull << 10, 64ull << 20})
      CHECK(widely(&memory, ranges, room) == expected);
  }
}

TEST_CASE("a range that the kernel does not answer for is told, and those behind it") {
  Sparse memory;
  const uint64_t half = memory.start() + kAll / 2;
  const std::vector<Range> ranges{{memory.start(), half - (8 << 20)},
                                  {half, memory.start() + kAll}};
  PageQuery query = kPresent;
  query.tracked_only = true;  // nothing is registered
  Region answers = scratch_map(64 << 20);
  std::vector<size_t> failed;
  scan_widely(&memory.map, query, ranges.data(), ranges.size(), answers,
              [&](size_t range, const PageRegion* r) {
                CHECK(!r);
                if (failed.empty() || failed.back() != range) failed.push_back(range);
                return true;
              });
  scratch_unmap(&answers);
  CHECK(failed == std::vector<size_t>{0, 1});
}

TEST_CASE("nobody asks further when no more is wanted") {
  Sparse memory;
  Region answers = scratch_map(64 << 20);
  const Range all{memory.start(), memory.start() + kAll};
  size_t told = 0;
  scan_widely(&memory.map, kPresent, &all, 1, answers,
              [&](size_t, const PageRegion*) { return ++told < 5; });
  scratch_unmap(&answers);
  CHECK(told == 5);
}
