// What an epoll entry may be: all flags, one-shot entries that were reported already and wait to be
// armed again, the parameters of busy polling.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include "feature.h"
struct parameters {
  uint32_t usecs;
  uint16_t budget;
  uint8_t prefer, pad;
};
#define GET_PARAMETERS _IOR(0x8A, 2, struct parameters)
#define SET_PARAMETERS _IOW(0x8A, 1, struct parameters)
static int set, quiet;
static int add(uint32_t events, uint64_t data, uint64_t count) {
  int fd = eventfd((unsigned)count, EFD_NONBLOCK);
  struct epoll_event e = {events, {.u64 = data}};
  CHECK(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
  return fd;
}
static void text_of(int fd, char* to) {
  char path[64];
  sprintf(path, "/proc/self/fdinfo/%d", fd);
  int f = open(path, O_RDONLY);
  long n = read(f, to, 4000);
  CHECK(n > 0);
  to[n] = 0;
  close(f);
}
// "tfd: 5 events: 19 data: 1", without what names inodes.
static int count_lines(const char* text, const char* events) {
  int n = 0;
  while ((text = strstr(text, events))) ++n, ++text;
  return n;
}
int main(void) {
  set = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event e[8];
  // Reported already: ready once more, never again, and not ready at all any more.
  int fired = add(EPOLLIN | EPOLLONESHOT, 1, 1), empty = add(EPOLLIN | EPOLLONESHOT | EPOLLET, 2, 1);
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && write(ends[1], "x", 1) == 1);
  e[0] = (struct epoll_event){EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, {.u64 = 3}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], e) == 0);
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0 && write(pipe_ends[1], "y", 1) == 1);
  e[0] = (struct epoll_event){EPOLLIN | EPOLLONESHOT, {.u64 = 4}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipe_ends[0], e) == 0);
  CHECK(epoll_wait(set, e, 8, 0) == 4);
  uint64_t n;
  char byte;
  CHECK(read(empty, &n, 8) == 8 && read(ends[0], &byte, 1) == 1 && read(pipe_ends[0], &byte, 1) == 1);
  // Not reported: armed, and with every flag.
  int armed = add(EPOLLIN | EPOLLONESHOT, 5, 0), alone = add(EPOLLIN | EPOLLEXCLUSIVE, 6, 0);
  int edge = add(EPOLLIN | EPOLLET, 7, 0);
  add(EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLWAKEUP, ~0ull, 0);
  quiet = epoll_create1(0);
  struct parameters p = {120, 16, 1, 0}, q;
  int has_parameters = ioctl(quiet, SET_PARAMETERS, &p) == 0;
  static char before[4001], after[4001];
  text_of(set, before);
  ready_and_wait();
  text_of(set, after);
  for (const char* word = "events:\0events:        0 \0events: 40000000\0events: c0000000\0events: 4000001\0events: 10000019\0events: 80000019\0";
       *word; word += strlen(word) + 1)
    CHECK(count_lines(before, word) == count_lines(after, word) || (dprintf(1, "%s\n%s%s", word, before, after), 0));
  if (has_parameters)
    CHECK(ioctl(quiet, GET_PARAMETERS, &q) == 0 && q.usecs == 120 && q.budget == 16 && q.prefer == 1);
  // What was reported stays silent, whatever happens.
  n = 1;
  CHECK(write(empty, &n, 8) == 8 && write(fired, &n, 8) == 8 && close(ends[1]) == 0);
  CHECK(close(pipe_ends[1]) == 0 && epoll_wait(set, e, 8, 0) == 0);
  e[0] = (struct epoll_event){EPOLLIN | EPOLLONESHOT, {.u64 = 11}};
  CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fired, e) == 0);
  CHECK(epoll_wait(set, e, 8, 0) == 1 && e[0].data.u64 == 11 && epoll_wait(set, e, 8, 0) == 0);
  CHECK(write(armed, &n, 8) == 8 && write(alone, &n, 8) == 8 && write(edge, &n, 8) == 8);
  CHECK(epoll_wait(set, e, 8, 0) == 3 && epoll_wait(set, e, 8, 0) == 1 && e[0].data.u64 == 6);
  return survived();
}
