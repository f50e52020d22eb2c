// Pages of shared memory that no mapping shows are kept: remap_file_pages, and mremap after the mapping was made smaller, bring
// them back.
#include <sys/mman.h>
#include "feature.h"

enum { kPages = 32 };

static long page;

static int* at(char* memory, int i) { return (int*)(memory + i * page); }

static char* numbered(void) {
  char* memory = mmap(NULL, kPages * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  for (int i = 0; i < kPages; ++i) *at(memory, i) = i;
  return memory;
}

int main(void) {
  page = sysconf(_SC_PAGESIZE);
  // As nobody such an object can be read only as far as it is mapped.
  if (access("/proc/self/map_files", R_OK) != 0 || geteuid() != 0) absent("the right to open map_files");
  char* remapped = numbered();
  char* shrunk = numbered();
  for (int i = kPages / 2; i < kPages; ++i) CHECK(remap_file_pages(remapped + i * page, page, 0, 0, 0) == 0);
  CHECK(mremap(shrunk, kPages * page, page, 0) == shrunk);
  ready_and_wait();
  for (int i = 0; i < kPages; ++i) {
    CHECK(*at(remapped, i) == (i < kPages / 2 ? i : 0));
    CHECK(remap_file_pages(remapped + i * page, page, 0, kPages - 1 - i, 0) == 0);
    CHECK(*at(remapped, i) == kPages - 1 - i);
  }
  shrunk = mremap(shrunk, page, kPages * page, MREMAP_MAYMOVE);
  CHECK(shrunk != MAP_FAILED);
  for (int i = 0; i < kPages; ++i) CHECK(*at(shrunk, i) == i);
  return survived();
}
