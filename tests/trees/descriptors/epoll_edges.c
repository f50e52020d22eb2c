// Edge-triggered and one-shot entries of epoll sets in a parent and in its child, each with a set of its own: what was
// reported stays silent, what was not is reported.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "tree.h"

static int set, reported, pending, fired;

static int add(uint32_t events, uint64_t data, unsigned value) {
  struct epoll_event e = {events, {.u64 = data}};
  const int fd = eventfd(value, EFD_NONBLOCK);
  CHECK(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
  return fd;
}

static void post(int fd) {
  const uint64_t one = 1;
  CHECK(write(fd, &one, 8) == 8);
}

static void set_up(void) {
  struct epoll_event e[4];
  set = epoll_create1(0);
  reported = add(EPOLLIN | EPOLLET, 1, 1), fired = add(EPOLLIN | EPOLLONESHOT, 2, 1);
  CHECK(epoll_wait(set, e, 4, 0) == 2);
  pending = add(EPOLLIN | EPOLLET, 3, 1);
}

static int is_as_before(void) {
  struct epoll_event e[4];
  if (epoll_wait(set, e, 4, 0) != 1 || e[0].data.u64 != 3 || epoll_wait(set, e, 4, 0) != 0) return 1;
  post(reported), post(fired);
  return epoll_wait(set, e, 4, 0) == 1 && e[0].data.u64 == 1 ? 50 : 2;
}

int main(void) {
  int ready[2];
  CHECK(pipe(ready) == 0);
  const pid_t parent = getpid();
  // The child sets up its own before it waits.
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    set_up();
    if (write(ready[1], "x", 1) != 1) _exit(101);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(getppid() == parent ? is_as_before() : 100);
  }
  set_up();
  char byte;
  CHECK(read(ready[0], &byte, 1) == 1);
  ready_and_wait();
  CHECK(is_as_before() == 50);
  CHECK(wait_status(child) == 50);
  return survived();
}
