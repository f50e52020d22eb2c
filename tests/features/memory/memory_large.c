// Private memory in pieces of megabytes, which a restore fills in another way than small ones: neighbours of one run with
// different rights and advice, holes of untouched pages, zeros that were written, memory that a child does not get, pages of a
// file between them. All bytes are as they were; memory that was never touched stays untouched.
#include <sys/mman.h>
#include "feature.h"
enum { kMiB = 1 << 20, kPage = 4096, kPieces = 10, kEach = 3 * kMiB };
static unsigned char* piece[kPieces];
static unsigned char byte_at(int i, size_t at) { return (unsigned char)(at * 2654435761u >> 13 ^ (unsigned)i * 91); }
static int is_hole(int i, size_t at) { return i == 3 && at / (5 * kPage) % 2; }
static int is_zero(int i, size_t at) { return i == 4 && at / kPage % 3 == 0; }
static unsigned char expected(int i, size_t at) { return is_hole(i, at) || is_zero(i, at) ? 0 : byte_at(i, at); }
static long untouched(const unsigned char* from, size_t bytes) {
  int fd = open("/proc/self/pagemap", O_RDONLY);
  long out = 0;
  CHECK(fd >= 0);
  for (size_t at = 0; at < bytes; at += kPage) {
    unsigned long long entry;
    CHECK(pread(fd, &entry, 8, (off_t)((size_t)(from + at) / kPage * 8)) == 8);
    out += entry >> 62 == 0;
  }
  close(fd);
  return out;
}
int main(void) {
  // One run: pieces 0 to 5 are neighbours.
  unsigned char* run = mmap(NULL, 6 * kEach, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(run != MAP_FAILED);
  for (int i = 0; i < 6; ++i) piece[i] = run + (size_t)i * kEach;
  for (int i = 6; i < kPieces; ++i) {
    piece[i] = mmap(NULL, kEach, 3, MAP_PRIVATE | MAP_ANONYMOUS | (i == 6 ? MAP_NORESERVE : 0), -1, 0);
    CHECK(piece[i] != MAP_FAILED);
  }
  madvise(piece[7], kEach, MADV_HUGEPAGE);
  madvise(piece[8], kEach, MADV_NOHUGEPAGE);
  for (int i = 0; i < kPieces; ++i)
    for (size_t at = 0; at < kEach; ++at)
      if (!is_hole(i, at)) piece[i][at] = expected(i, at);
  // A page of a file in the middle of a large piece cuts it into two.
  int file = open("/proc/self/exe", O_RDONLY);
  unsigned char* page = mmap(piece[9] + kMiB, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
  CHECK(file >= 0 && page != MAP_FAILED);
  CHECK(mprotect(piece[1], kEach, PROT_READ) == 0 && mprotect(piece[2], kEach, PROT_NONE) == 0);
  CHECK(madvise(piece[5], kEach, MADV_DONTFORK) == 0);
  const long before = untouched(piece[3], kEach);
  ready_and_wait();
  CHECK(mprotect(piece[2], kEach, PROT_READ) == 0);
  for (int i = 0; i < kPieces; ++i)
    for (size_t at = 0; at < kEach; ++at)
      CHECK((i == 9 && at >= kMiB && at < kMiB + kPage) || is_hole(i, at) || piece[i][at] == expected(i, at));
  CHECK(untouched(piece[3], kEach) == before && before > 100);
  for (size_t at = 0; at < kEach; ++at) CHECK(piece[3][at] == expected(3, at));
  CHECK(memcmp(page, "\177ELF", 4) == 0);
  piece[0][5] = 1, piece[6][kEach - 1] = 1;
  return survived();
}
