// A program of one thread waits all the time, in calls that SA_RESTART does not make go on: none of them ends early because of a
// snapshot. (libc makes them in another way than in a program of several threads: wait_beside.c.)
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include "feature.h"
static void wait_in(int way, int ep) {
  struct timespec t = {0, 60000000};
  struct timeval v = {0, 60000};
  struct epoll_event e;
  const int64_t begin = now_ms(CLOCK_MONOTONIC);
  if (way == 0) CHECK(poll(NULL, 0, 60) == 0);
  if (way == 1) CHECK(nanosleep(&t, NULL) == 0);
  if (way == 2) CHECK(epoll_wait(ep, &e, 1, 60) == 0);
  if (way == 3) CHECK(select(0, NULL, NULL, NULL, &v) == 0);
  if (way == 4) CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL) == 0);
  if (way == 5) CHECK(ppoll(NULL, 0, &t, NULL) == 0);
  CHECK(now_ms(CLOCK_MONOTONIC) - begin >= 59);
}
#ifdef WITH_A_THREAD
static void* wait_too(void* unused) {
  pause();
  return unused;
}
#endif
int main(void) {
  const int ep = epoll_create1(EPOLL_CLOEXEC);
  CHECK(ep >= 0);
#ifdef WITH_A_THREAD
  start_thread(wait_too, NULL);
#endif
  CHECK(write(1, "ready\n", 6) == 6);
  for (int way = 0; access("go_on", F_OK) != 0; way = (way + 1) % 6) wait_in(way, ep);
  return survived();
}
