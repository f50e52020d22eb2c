// Pages by words of /proc/self/pagemap, as kernels before 6.7 have them: the same answers as from a
// scan, and never "unchanged" for what could have changed.
#include "snapshot/memory/pagemap.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace gpuckpt;

constexpr uint64_t kPageBytes = 4096, kPages = 8192;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

std::vector<PageRegion> all(Pagemap& map, uint64_t start, uint64_t end, const PageQuery& query,
                            size_t room) {
  std::vector<PageRegion> found, some(room);
  while (start < end) {
    const long n = map.scan(&start, end, query, some.data(), room);
    CHECK(n >= 0);
    for (long i = 0; i < n; ++i) {
      PageRegion& r = some[static_cast<size_t>(i)];
      // What a full list has torn apart.
      if (!found.empty() && found.back().end == r.start && found.back().categories == r.categories)
        found.back().end = r.end;
      else
        found.push_back(r);
    }
  }
  return found;
}

void words_say_when_a_page_may_have_changed() {
  constexpr uint64_t soft_dirty = 1ull << 55, exclusive = 1ull << 56, guard = 1ull << 58,
                     file = 1ull << 61, swapped = 1ull << 62, present = 1ull << 63;
  CHECK(categories_of(0) == 0);
  CHECK(categories_of(present | exclusive) == kPagePresent);
  CHECK(categories_of(swapped) == kPageSwapped);
  CHECK(categories_of(swapped | soft_dirty) & kPageWritten);
  CHECK(categories_of(present | exclusive | soft_dirty) & kPageWritten);
  // The zero page that a read mapped after MADV_DONTNEED looks like a page that a child has as
  // well.
  CHECK(categories_of(present) & kPageWritten);
  CHECK(categories_of(present | file) == (kPagePresent | kPageFile | kPageWritten));
  CHECK(categories_of(guard | swapped) == kPageGuard);
}

void words_tell_what_a_scan_tells() {
  Pagemap words, scan;
  CHECK(words.open(Pagemap::Source::kWords));
  CHECK(scan.open());
  char* memory = static_cast<char*>(mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(memory != MAP_FAILED && madvise(memory, kPages * kPageBytes, MADV_NOHUGEPAGE) == 0);
  srand(1);
  for (uint64_t i = 0; i < kPages; ++i)
    if (rand() % 3 == 0) memory[i * kPageBytes] = 1;
  const uint64_t start = reinterpret_cast<uint64_t>(memory), end = start + kPages * kPageBytes;
  const PageQuery queries[] = {
      {.any = kPagePresent | kPageSwapped, .tell = kPagePresent},
      {.none = kPageFile, .any = kPagePresent | kPageSwapped, .tell = kPagePresent},
      {.any = kPageGuard, .any_not = kPagePresent, .tell = kPagePresent | kPageSwapped},
      {.all = kPagePresent, .tell = kPagePresent | kPageFile},
  };
  for (const PageQuery& query : queries) {
    // More than the 512 regions that the kernel collects at a time.
    const auto expected = all(words, start, end, query, 10000);
    CHECK(expected.size() > 1100);
    for (size_t room : {1, 7, 512, 513, 1024, 10000})
      for (Pagemap* map : {&words, &scan}) {
        const auto told = all(*map, start, end, query, room);
        CHECK(told.size() == expected.size());
        for (size_t i = 0; i < told.size(); ++i)
          CHECK(told[i].start == expected[i].start && told[i].end == expected[i].end &&
                told[i].categories == expected[i].categories);
      }
  }
  uint64_t at = start;
  PageRegion unused;
  CHECK(words.scan(&at, end, {.any = kPagePresent, .protect = true}, &unused, 1) < 0);
  words.close();
  CHECK(!words.answers());
  scan.close();
  munmap(memory, kPages * kPageBytes);
}

}  // namespace

int main() {
  words_say_when_a_page_may_have_changed();
  words_tell_what_a_scan_tells();
  printf("ok\n");
}
