// Memory of the huge page pool: refused by name. (Nothing is reserved, so that any machine will do.)
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  CHECK(mmap(NULL, 2 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0) != MAP_FAILED);
  ready_and_wait();
  return survived();
}
