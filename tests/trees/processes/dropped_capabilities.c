// A parent with all capabilities and children of the same user that have dropped theirs (Chromium's): the kernel compares
// descriptors (kcmp) for neither a child with its parent nor, perhaps, one child with another. Each has epoll sets, event
// counters, timers and a file of its own that look like those of the others, and one set that all have in common.
#include <linux/capability.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include "tree.h"
enum { kChildren = 4 };
static int common, common_event, own, event, timer, file;
static void drop(void) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_capset, &head, none) == 0);
}
static void watch(int set, int fd, uint64_t data) {
  struct epoll_event e = {EPOLLIN, {.u64 = data}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}
// The same numbers, and the same look, in every process.
static void make(uint64_t self) {
  const struct itimerspec far = {{0, 0}, {1000 + (time_t)self, 0}};
  own = epoll_create1(0), event = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0), file = open("text", O_RDONLY);
  CHECK(own >= 0 && event >= 0 && timer >= 0 && file >= 0 && timerfd_settime(timer, 0, &far, NULL) == 0);
  watch(own, event, 100 + self);
}
static int check(uint64_t self) {
  struct epoll_event e[8];
  uint64_t one = 1;
  char text[8];
  struct itimerspec left;
  if (epoll_wait(own, e, 8, 0) != 0) return 1;
  if (write(event, &one, 8) != 8 || epoll_wait(own, e, 8, 1000) != 1 || e[0].data.u64 != 100 + self) return 2;
  sleep_ms(200);  // every process has written to its own
  if (read(event, &one, 8) != 8 || one != 1 || epoll_wait(own, e, 8, 0) != 0) return 3;
  if (timerfd_gettime(timer, &left) != 0 || left.it_value.tv_sec > 1000 + (time_t)self || left.it_value.tv_sec < 800) return 4;
  for (int i = 0; i < 4; ++i, sleep_ms(20))
    if (read(file, text, 1) != 1 || text[0] != 'a' + i) return 5;
  if (epoll_wait(common, e, 8, 0) != 1 || e[0].data.u64 != 7) return 6;
  return 0;
}
int main(void) {
  const int text = open("text", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(text >= 0 && write(text, "abcdefgh", 8) == 8 && close(text) == 0);
  uint64_t one = 1;
  common = epoll_create1(0), common_event = eventfd(0, 0);
  watch(common, common_event, 7);
  CHECK(write(common_event, &one, 8) == 8);
  pid_t child[kChildren];
  int ready[2];
  char byte;
  CHECK(pipe(ready) == 0);
  for (uint64_t i = 0; i < kChildren; ++i) {
    if ((child[i] = fork()) != 0) continue;
    drop();
    make(i + 1);
    CHECK(write(ready[1], "r", 1) == 1);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(check(i + 1));
  }
  make(0);
  for (int i = 0; i < kChildren; ++i) CHECK(read(ready[0], &byte, 1) == 1);
  ready_and_wait();
  CHECK(check(0) == 0);
  for (int i = 0; i < kChildren; ++i) CHECK(wait_status(child[i]) == 0);
  return survived();
}
