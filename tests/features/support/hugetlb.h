// Programs with memory of the huge page pool. The driver sees to it that there are sixteen pages.
#pragma once
#include <sys/mman.h>
#include "../feature.h"
#define HUGE (2ul << 20)
#define HUGETLBFS 0x958458f6

static inline void fill(unsigned char* at, unsigned seed) {
  for (size_t i = 0; i < HUGE; i += 64) at[i] = (unsigned char)(seed + i / 64 * 7);
}
static inline int is_filled(const unsigned char* at, unsigned seed) {
  for (size_t i = 0; i < HUGE; i += 64)
    if (at[i] != (unsigned char)(seed + i / 64 * 7)) return 0;
  return 1;
}

static inline unsigned char* map_pages(size_t pages, int prot, int flags, int fd) {
  unsigned char* p = mmap(NULL, pages * HUGE, prot, flags, fd, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

// Does the kernel serve this address by huge pages?
static inline int is_huge(const void* at) {
  FILE* f = fopen("/proc/self/smaps", "r");
  CHECK(f != NULL);
  char line[512];
  int here = 0, kilobytes = 0;
  while (fgets(line, sizeof(line), f)) {
    unsigned long start, end;
    if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
      here = (unsigned long)at >= start && (unsigned long)at < end;
    if (here) sscanf(line, "KernelPageSize: %d", &kilobytes);
  }
  fclose(f);
  return kilobytes == 2048;
}

// Has this address a page? Looking at it would give it one.
static inline int has_page(void* at) {
  unsigned char resident = 0;
  CHECK(mincore(at, 4096, &resident) == 0);
  return resident & 1;
}
