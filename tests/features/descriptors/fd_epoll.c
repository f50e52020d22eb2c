// epoll: the registered set with user data, edge triggering and one-shot, nested, with a waiter.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "feature.h"
static int waited, woke;
static void* waiter(void* a) {
  struct epoll_event e;
  CHECK(epoll_wait(waited, &e, 1, -1) == 1 && e.data.u64 == 99);
  woke = 1;
  return a;
}
int main(void) {
  int e = epoll_create1(EPOLL_CLOEXEC), inner = epoll_create1(0), a = eventfd(0, 0), b = eventfd(0, 0), c = eventfd(0, 0);
  int other = dup(c);
  struct epoll_event ev = {EPOLLIN, {.u64 = 0x1111222233334444}};
  CHECK(epoll_ctl(e, EPOLL_CTL_ADD, a, &ev) == 0);
  ev = (struct epoll_event){EPOLLIN | EPOLLONESHOT, {.u64 = 2}};
  CHECK(epoll_ctl(e, EPOLL_CTL_ADD, b, &ev) == 0);
  ev = (struct epoll_event){EPOLLIN, {.u64 = 3}};
  CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, c, &ev) == 0);
  ev = (struct epoll_event){EPOLLIN, {.u64 = 4}};
  CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, other, &ev) == 0);
  ev = (struct epoll_event){EPOLLIN | EPOLLET, {.u64 = 5}};
  CHECK(epoll_ctl(e, EPOLL_CTL_ADD, inner, &ev) == 0);
  waited = epoll_create1(0);
  int w = eventfd(0, 0);
  ev = (struct epoll_event){EPOLLIN, {.u64 = 99}};
  CHECK(epoll_ctl(waited, EPOLL_CTL_ADD, w, &ev) == 0);
  pthread_t t = start_thread(waiter, NULL);
  sleep_ms(20);
  ready_and_wait();
  struct epoll_event got[4];
  CHECK(epoll_wait(e, got, 4, 0) == 0 && !woke);
  CHECK(fcntl(e, F_GETFD) & FD_CLOEXEC);
  uint64_t one = 1;
  CHECK(write(a, &one, 8) == 8);
  CHECK(epoll_wait(e, got, 4, 1000) == 1 && got[0].data.u64 == 0x1111222233334444);
  CHECK(read(a, &one, 8) == 8);
  CHECK(write(b, &one, 8) == 8 && epoll_wait(e, got, 4, 1000) == 1 && got[0].data.u64 == 2);
  CHECK(epoll_wait(e, got, 4, 0) == 0);
  CHECK(write(c, &one, 8) == 8 && epoll_wait(inner, got, 4, 1000) == 2);
  CHECK(epoll_wait(e, got, 4, 1000) == 1 && got[0].data.u64 == 5);
  CHECK(epoll_ctl(e, EPOLL_CTL_DEL, a, NULL) == 0 && epoll_ctl(inner, EPOLL_CTL_MOD, other, &ev) == 0);
  CHECK(write(w, &one, 8) == 8);
  pthread_join(t, NULL);
  return survived();
}
