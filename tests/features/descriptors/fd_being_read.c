// The list of mappings is in the middle of being read, and what was read of it is no longer true:
// a snapshot waits until the rest is read, which follows what was read before.
#include <sys/mman.h>
#include "feature.h"
enum { kPages = 400, kFirst = kPages / 2 };  // every second page is a mapping
static const size_t kPage = 4096;
static char* piece;
static uint64_t last;  // address of the last line that was read in whole
static int seen[kPages];

// Reads in small pieces, until the line of that address has been read or nothing is left.
static void read_lines(int maps, uint64_t until) {
  static char line[8192];
  static size_t n;
  while (last < until) {
    const ssize_t got = read(maps, line + n, 64);
    CHECK(got >= 0);
    if (got == 0) return;
    n += (size_t)got;
    for (char* end; (end = memchr(line, '\n', n)) != NULL;) {
      uint64_t from, to;
      char rights[5];
      *end = 0;
      CHECK(sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && from < to && from > last);
      last = from;
      const uint64_t page = (from - (uint64_t)piece) / kPage;
      if (from >= (uint64_t)piece && page < kPages) ++seen[page];
      n -= (size_t)(end + 1 - line);
      memmove(line, end + 1, n);
    }
  }
  CHECK(n < sizeof(line) - 64);
}
int main(void) {
  piece = mmap(NULL, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(piece != MAP_FAILED);
  for (int i = 0; i < kPages; i += 2) CHECK(mprotect(piece + (size_t)i * kPage, kPage, PROT_READ) == 0);
  const int maps = open("/proc/self/maps", O_RDONLY);
  CHECK(maps >= 0);
  read_lines(maps, (uint64_t)piece + kFirst * kPage);
  CHECK(munmap(piece, kFirst * kPage) == 0);
  CHECK(write(1, "ready\n", 6) == 6);
  sleep_ms(700);
  read_lines(maps, UINT64_MAX);
  for (int i = 0; i < kPages; ++i) CHECK(seen[i] == 1);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  char more;
  CHECK(read(maps, &more, 1) == 0);
  return survived();
}
