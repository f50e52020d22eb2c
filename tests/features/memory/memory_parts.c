// Different parts of one file in memory, and of one file without a name, some mapped shared, some privately, and no
// descriptor left: each mapping shows its part, also where the program has not looked yet.
#include <sys/mman.h>
#include "feature.h"
enum { kPage = 4096, kPages = 24 };
static void check(const unsigned char* m, int first, int pages) {
  for (int i = 0; i < pages; ++i) CHECK(m[i * kPage] == first + i + 1 && m[i * kPage + kPage - 1] == first + i + 1);
}
static unsigned char* map(int fd, int first, int pages, int prot, int how) {
  unsigned char* m = mmap(NULL, (size_t)pages * kPage, prot, how, fd, (off_t)first * kPage);
  CHECK(m != MAP_FAILED);
  return m;
}
int main(void) {
  const int files[2] = {memfd_create("parts", 0), open("file", O_RDWR | O_CREAT | O_EXCL, 0600)};
  unsigned char *shared[2], *before[2], *behind[2];
  for (int f = 0; f < 2; ++f) {
    CHECK(files[f] >= 0);
    for (int i = 0; i < kPages; ++i) {
      unsigned char page[kPage];
      memset(page, i + 1, sizeof(page));
      CHECK(pwrite(files[f], page, sizeof(page), (off_t)i * kPage) == kPage);
    }
    shared[f] = map(files[f], 8, 6, PROT_READ | PROT_WRITE, MAP_SHARED);
    before[f] = map(files[f], 2, 8, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    behind[f] = map(files[f], 14, 8, PROT_READ, MAP_PRIVATE);
    close(files[f]);
    before[f][kPage] = 99;  // this mapping's own
    shared[f][3 * kPage] = 77;
  }
  CHECK(unlink("file") == 0);
  ready_and_wait();
  for (int f = 0; f < 2; ++f) {
    CHECK(before[f][kPage] == 99 && before[f][2 * kPage - 1] == 4 && shared[f][3 * kPage] == 77);
    before[f][kPage] = 4, shared[f][3 * kPage] = 12;
    check(before[f], 2, 8);
    check(shared[f], 8, 6);
    check(behind[f], 14, 8);
    shared[f][0] = 55;  // the file's: what is mapped privately follows it
    CHECK(before[f][6 * kPage] == 55);
  }
  return survived();
}
