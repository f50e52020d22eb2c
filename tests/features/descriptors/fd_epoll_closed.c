// epoll still watches a description whose registered number is closed or used for something else.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "feature.h"
int main(void) {
  int e = epoll_create1(0), a = eventfd(0, 0);
  struct epoll_event ev = {EPOLLIN, {.u64 = 8}}, got;
  CHECK(epoll_ctl(e, EPOLL_CTL_ADD, a, &ev) == 0);
  int keeper = dup(a);
  close(a);
  int reused = eventfd(0, 0);
  CHECK(reused == a);
  ready_and_wait();
  uint64_t one = 1;
  CHECK(write(reused, &one, 8) == 8 && epoll_wait(e, &got, 1, 0) == 0);
  CHECK(write(keeper, &one, 8) == 8 && epoll_wait(e, &got, 1, 1000) == 1 && got.data.u64 == 8);
  return survived();
}
