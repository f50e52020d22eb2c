// Edge-triggered entries of an epoll set: what has been reported is not reported again before there is something new, and what
// has not been reported is. So with one-shot entries that are armed, and none of it is disturbed by a snapshot.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include "feature.h"

enum { kReported, kPending, kNotReady, kWritable, kReadable, kOnce, kOnceArmed, kLevel, kHungUp, kCount };
static int set, target[kCount], other[kCount];

static void add(int which, int fd, uint32_t events) {
  struct epoll_event e = {events, {.u64 = 100u + (unsigned)which}};
  target[which] = fd;
  CHECK(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}

static int counter(unsigned value) { return eventfd(value, EFD_NONBLOCK); }

static int connected(int which) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  other[which] = ends[1];
  return ends[0];
}

// The events of one look at the set, by entry.
static void look(uint32_t* events) {
  struct epoll_event e[2 * kCount];
  memset(events, 0, kCount * sizeof(*events));
  const int n = epoll_wait(set, e, 2 * kCount, 0);
  CHECK(n >= 0);
  for (int i = 0; i < n; ++i) events[e[i].data.u64 - 100] |= e[i].events;
}

static void post(int fd) {
  const uint64_t one = 1;
  CHECK(write(fd, &one, 8) == 8);
}

int main(void) {
  uint32_t events[kCount];
  set = epoll_create1(0);
  add(kReported, counter(1), EPOLLIN | EPOLLET);
  add(kPending, counter(0), EPOLLIN | EPOLLET);
  add(kNotReady, counter(0), EPOLLIN | EPOLLET);
  add(kWritable, connected(kWritable), EPOLLIN | EPOLLOUT | EPOLLET);
  add(kReadable, connected(kReadable), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  add(kOnce, counter(1), EPOLLIN | EPOLLET | EPOLLONESHOT);
  add(kOnceArmed, counter(0), EPOLLIN | EPOLLONESHOT);
  add(kLevel, counter(1), EPOLLIN);
  add(kHungUp, connected(kHungUp), EPOLLIN | EPOLLRDHUP | EPOLLET);
  CHECK(write(other[kReadable], "abc", 3) == 3 && close(other[kHungUp]) == 0);
  look(events);
  CHECK(events[kReported] == EPOLLIN && events[kWritable] == EPOLLOUT && events[kReadable] == (EPOLLIN | EPOLLOUT));
  CHECK(events[kOnce] == EPOLLIN && events[kLevel] == EPOLLIN && events[kHungUp] == (EPOLLIN | EPOLLRDHUP | EPOLLHUP));
  char byte;
  CHECK(read(target[kReadable], &byte, 1) == 1);  // two more are known of
  post(target[kPending]), post(target[kOnceArmed]);
  ready_and_wait();
  look(events);
  CHECK(events[kPending] == EPOLLIN && events[kOnceArmed] == EPOLLIN && events[kLevel] == EPOLLIN);
  CHECK(!events[kReported] && !events[kNotReady] && !events[kOnce] && !events[kHungUp]);
  CHECK(!events[kWritable] && !events[kReadable]);
  look(events);
  CHECK(!events[kPending] && !events[kOnceArmed] && events[kLevel] == EPOLLIN);
  post(target[kReported]), post(target[kNotReady]), post(target[kPending]);
  CHECK(write(other[kWritable], "x", 1) == 1 && write(other[kReadable], "d", 1) == 1);
  look(events);
  CHECK(events[kReported] == EPOLLIN && events[kNotReady] == EPOLLIN && events[kPending] == EPOLLIN);
  CHECK(events[kWritable] == (EPOLLIN | EPOLLOUT) && events[kReadable] == (EPOLLIN | EPOLLOUT));
  char text[8];
  CHECK(read(target[kReadable], text, 8) == 3 && memcmp(text, "bcd", 3) == 0);
  return survived();
}
