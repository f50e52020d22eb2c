// timerfd: relative, absolute and periodic, unread expirations, several clocks, a blocked reader.
#include <sys/timerfd.h>
#include "feature.h"
static int soon;
static void* reader(void* a) {
  uint64_t n;
  CHECK(read(soon, &n, 8) == 8 && n >= 1);
  return a;
}
int main(void) {
  int far = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), often = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
  int at = timerfd_create(CLOCK_REALTIME, 0), fired = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  int off = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), gone = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  soon = timerfd_create(CLOCK_MONOTONIC, 0);
  struct itimerspec s = {{7, 0}, {1000, 0}}, now;
  CHECK(timerfd_settime(far, 0, &s, NULL) == 0);
  s = (struct itimerspec){{0, 20000000}, {0, 20000000}};
  CHECK(timerfd_settime(often, 0, &s, NULL) == 0);
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  s = (struct itimerspec){{0, 0}, {t.tv_sec + 500, 0}};
  CHECK(timerfd_settime(at, TFD_TIMER_ABSTIME, &s, NULL) == 0);
  s = (struct itimerspec){{300, 0}, {0, 1}};
  CHECK(timerfd_settime(fired, 0, &s, NULL) == 0);
  s = (struct itimerspec){{0, 0}, {0, 1}};
  CHECK(timerfd_settime(gone, 0, &s, NULL) == 0);
  s = (struct itimerspec){{0, 0}, {0, 400000000}};
  CHECK(timerfd_settime(soon, 0, &s, NULL) == 0);
  pthread_t r = start_thread(reader, NULL);
  sleep_ms(5);
  ready_and_wait();
  uint64_t n;
  CHECK(timerfd_gettime(far, &now) == 0 && now.it_value.tv_sec > 900 && now.it_value.tv_sec < 1000 && now.it_interval.tv_sec == 7);
  CHECK(read(far, &n, 8) == -1 && errno == EAGAIN);
  CHECK(read(often, &n, 8) == 8 && n >= 1 && read(often, &n, 8) == 8);
  CHECK(timerfd_gettime(at, &now) == 0 && now.it_value.tv_sec > 400 && now.it_value.tv_sec <= 500);
  CHECK(read(fired, &n, 8) == 8 && n == 1);
  CHECK(timerfd_gettime(fired, &now) == 0 && now.it_value.tv_sec > 200 && now.it_interval.tv_sec == 300);
  CHECK(read(gone, &n, 8) == 8 && n == 1);
  CHECK(timerfd_gettime(gone, &now) == 0 && !now.it_value.tv_sec && !now.it_value.tv_nsec);
  CHECK(timerfd_gettime(off, &now) == 0 && !now.it_value.tv_sec && read(off, &n, 8) == -1);
  pthread_join(r, NULL);
  return survived();
}
