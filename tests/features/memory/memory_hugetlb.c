// Private memory of the huge page pool: its contents, the kind of memory it is, and what was never
// touched and must not cost a page.
#include "support/hugetlb.h"
int main(void) {
  const int rw = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
  unsigned char* three = map_pages(3, rw, private, -1);
  fill(three + HUGE, 1);
  unsigned char* hidden = map_pages(1, rw, private, -1);
  fill(hidden, 2);
  CHECK(mprotect(hidden, HUGE, PROT_NONE) == 0);
  // More than the pool has.
  unsigned char* sparse = map_pages(4096, rw, private | MAP_NORESERVE, -1);
  fill(sparse + 1000 * HUGE, 3);
  ready_and_wait();
  CHECK(is_huge(three) && is_huge(hidden) && is_huge(sparse));
  CHECK(!has_page(three) && has_page(three + HUGE) && !has_page(sparse));
  CHECK(is_filled(three + HUGE, 1) && is_filled(sparse + 1000 * HUGE, 3));
  CHECK(mprotect(hidden, HUGE, PROT_READ) == 0 && is_filled(hidden, 2));
  CHECK(three[0] == 0 && three[2 * HUGE] == 0 && sparse[999 * HUGE] == 0);
  pid_t child = fork();
  if (child == 0) _exit(is_filled(three + HUGE, 1) ? 0 : 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  three[HUGE] = hidden[0] + 1, sparse[1000 * HUGE] = 9;
  return survived();
}
