// Memory in many pieces: mappings of which every third page exists, from a few pieces to many
// thousands, anonymous and of a file; one that advice has riddled with holes; thousands of mappings.
#include <sys/mman.h>
#include "feature.h"

enum { kPage = 4096 };
static const size_t pages[] = {30, 1535, 1536, 1540, 3 * 512 + 300, 3 * 1024, 3 * 1024 + 100, 60000};
enum { kArenas = sizeof pages / sizeof pages[0] };
static unsigned char *arena[kArenas], *of_file, *riddled, *strips;

static unsigned word(const unsigned char* at) {
  unsigned w;
  memcpy(&w, at + 100, sizeof w);
  return w;
}
static void set(unsigned char* at, unsigned w) { memcpy(at + 100, &w, sizeof w); }

static unsigned char* map(size_t count, int flags, int fd) {
  unsigned char* at = mmap(NULL, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd, 0);
  CHECK(at != MAP_FAILED && madvise(at, count * kPage, MADV_NOHUGEPAGE) == 0);
  return at;
}

int main(void) {
  const size_t kFile = 3000, kRiddled = 4000, kStrips = 3000;
  for (int k = 0; k < kArenas; ++k) {
    arena[k] = map(pages[k], MAP_ANONYMOUS | MAP_NORESERVE, -1);
    for (size_t i = 0; i < pages[k]; i += 3) set(arena[k] + i * kPage, (unsigned)(i + 1));
  }
  int fd = open("scattered", O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)(kFile * kPage)) == 0);
  of_file = map(kFile, 0, fd);
  for (size_t i = 0; i < kFile; i += 2) set(of_file + i * kPage, (unsigned)(i + 1));
  riddled = map(kRiddled, MAP_ANONYMOUS, -1);
  for (size_t i = 0; i < kRiddled; ++i) set(riddled + i * kPage, (unsigned)(i + 1));
  for (size_t i = 1; i < kRiddled; i += 2) CHECK(madvise(riddled + i * kPage, kPage, MADV_DONTNEED) == 0);
  strips = map(kStrips, MAP_ANONYMOUS, -1);
  for (size_t i = 0; i < kStrips; ++i) {
    set(strips + i * kPage, (unsigned)(i + 1));
    if (i % 2) CHECK(mprotect(strips + i * kPage, kPage, PROT_READ) == 0);
  }
  ready_and_wait();
  for (int k = 0; k < kArenas; ++k)
    for (size_t i = 0; i < pages[k]; ++i) CHECK(word(arena[k] + i * kPage) == (i % 3 ? 0 : (unsigned)(i + 1)));
  for (size_t i = 0; i < kFile; ++i) CHECK(word(of_file + i * kPage) == (i % 2 ? 0 : (unsigned)(i + 1)));
  for (size_t i = 0; i < kRiddled; ++i) CHECK(word(riddled + i * kPage) == (i % 2 ? 0 : (unsigned)(i + 1)));
  for (size_t i = 0; i < kStrips; ++i) CHECK(word(strips + i * kPage) == (unsigned)(i + 1));
  for (size_t i = 0; i < kStrips; i += 2) set(strips + i * kPage, 7);
  return survived();
}
