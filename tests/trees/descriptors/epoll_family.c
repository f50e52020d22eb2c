// An epoll set that a child inherited, in which parent and child each watch what the other has not.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "tree.h"
static void watch(int set, int fd, uint32_t data) {
  struct epoll_event e = {EPOLLIN, {.u32 = data}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}
static void expect(int set, uint32_t data) {
  struct epoll_event e[4];
  CHECK(epoll_wait(set, e, 4, 20000) == 1 && e[0].data.u32 == data);
}
int main(void) {
  int set = epoll_create1(0), both = eventfd(0, 0), up[2], down[2];
  CHECK(pipe(up) == 0 && pipe(down) == 0);
  watch(set, both, 1);
  char c;
  uint64_t one = 1;
  pid_t child = fork();
  if (child == 0) {
    int mine = eventfd(0, 0);
    watch(set, mine, 2);
    CHECK(write(up[1], "+", 1) == 1 && read(down[0], &c, 1) == 1);
    CHECK(write(mine, &one, 8) == 8 && write(up[1], "m", 1) == 1);
    CHECK(read(down[0], &c, 1) == 1 && read(mine, &one, 8) == 8 && write(up[1], "r", 1) == 1);
    expect(set, 3);
    _exit(6);
  }
  int mine = eventfd(0, 0);
  watch(set, mine, 3);
  CHECK(read(up[0], &c, 1) == 1);
  ready_and_wait();
  CHECK(write(both, &one, 8) == 8);
  expect(set, 1);
  CHECK(read(both, &one, 8) == 8 && write(down[1], "g", 1) == 1 && read(up[0], &c, 1) == 1);
  expect(set, 2);
  CHECK(write(down[1], "g", 1) == 1 && read(up[0], &c, 1) == 1);
  CHECK(write(mine, &one, 8) == 8);
  CHECK(wait_status(child) == 6);
  return survived();
}
