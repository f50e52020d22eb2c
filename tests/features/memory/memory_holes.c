// A hole that munmap left where the kernel maps next stays one, also while a snapshot is taken: the program maps it again, and
// mremap grows into it in place.
#include <sys/mman.h>
#include "feature.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { kHole = 64 << 20 };

int main(void) {
  long page = sysconf(_SC_PAGESIZE);
  char* hole = mmap(NULL, kHole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(hole != MAP_FAILED);
  memset(hole, 'a', page);
  CHECK(munmap(hole + page, kHole - page) == 0);
  CHECK(write(1, "ready\n", 6) == 6);
  do {
    CHECK(mmap(hole + page, kHole - page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == hole + page);
    CHECK(munmap(hole + page, kHole - page) == 0);
    CHECK(mremap(hole, page, kHole, 0) == hole);
    CHECK(mremap(hole, kHole, page, 0) == hole);
    for (int i = 0; i < page; ++i) CHECK(hole[i] == 'a');
    sleep_ms(1);
  } while (access("go_on", F_OK) != 0);
  return survived();
}
