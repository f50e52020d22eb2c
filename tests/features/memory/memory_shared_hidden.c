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
  // As nobody what lies behind the last mapping of an object is lost, which only mremap could bring back.
  const int all = geteuid() == 0 && access("/proc/self/map_files", R_OK) == 0;
  char* remapped = numbered();
  char* shrunk = numbered();
  char* hidden = numbered();  // all but its first page
  if (mlock(hidden, page) != 0) CHECK(errno == EPERM || errno == ENOMEM);
  for (int i = 0; i < kPages; ++i) CHECK(remap_file_pages(hidden + i * page, page, 0, 0, 0) == 0);
  char* twice = numbered();  // one page is shown twice, another one not at all
  CHECK(remap_file_pages(twice + 3 * page, page, 0, 7, 0) == 0);
  for (int i = kPages / 2; i < kPages; ++i) CHECK(remap_file_pages(remapped + i * page, page, 0, 0, 0) == 0);
  if (all) CHECK(mremap(shrunk, kPages * page, page, 0) == shrunk);
  ready_and_wait();
  for (int i = 0; i < kPages; ++i) {
    CHECK(*at(remapped, i) == (i < kPages / 2 ? i : 0));
    CHECK(remap_file_pages(remapped + i * page, page, 0, kPages - 1 - i, 0) == 0);
    CHECK(*at(remapped, i) == kPages - 1 - i);
    CHECK(remap_file_pages(hidden + i * page, page, 0, i, 0) == 0 && *at(hidden, i) == i);
  }
  CHECK(remap_file_pages(twice + 3 * page, page, 0, 3, 0) == 0 && *at(twice, 3) == 3 && *at(twice, 7) == 7);
  if (all) shrunk = mremap(shrunk, page, kPages * page, MREMAP_MAYMOVE);
  CHECK(shrunk != MAP_FAILED);
  for (int i = 0; i < kPages; ++i) CHECK(*at(shrunk, i) == i);
  return survived();
}
