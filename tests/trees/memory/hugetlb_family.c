// Huge pages of a parent and its child: private ones that the child still shares with its parent
// and ones that it wrote to, and memory that both see.
#include "../features/support/hugetlb.h"
#include "tree.h"
int main(void) {
  const int rw = PROT_READ | PROT_WRITE;
  unsigned char* private = map_pages(2, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
  unsigned char* shared = map_pages(1, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1);
  fill(private, 1), fill(private + HUGE, 2);
  pid_t child = fork();
  if (child == 0) {
    fill(private + HUGE, 3);
    shared[1] = 1;
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    const int right = is_filled(private, 1) && is_filled(private + HUGE, 3) && is_huge(private);
    private[0] = 5;
    shared[0] = 44;
    _exit(right ? 50 : 1);
  }
  while (!*(volatile unsigned char*)(shared + 1)) sleep_ms(2);
  ready_and_wait();
  CHECK(wait_status(child) == 50);
  CHECK(is_filled(private, 1) && is_filled(private + HUGE, 2) && shared[0] == 44 &&
        is_huge(shared));
  return survived();
}
