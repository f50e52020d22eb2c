// setitimer of all three kinds and alarm go on with what was left.
#include <sys/time.h>
#include "feature.h"
static volatile int real, virt, prof;
static void handler(int s) { s == SIGALRM ? ++real : s == SIGVTALRM ? ++virt : ++prof; }
int main(void) {
  struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &a, NULL), sigaction(SIGVTALRM, &a, NULL), sigaction(SIGPROF, &a, NULL);
  struct itimerval often = {{0, 20000}, {0, 20000}}, later = {{0, 0}, {500, 0}}, now;
  setitimer(ITIMER_REAL, &often, NULL);
  setitimer(ITIMER_VIRTUAL, &often, NULL);
  setitimer(ITIMER_PROF, &later, NULL);
  ready_and_wait();
  int r = real, v = virt;
  for (int64_t end = now_ms(CLOCK_MONOTONIC) + 10000; (real == r || virt == v) && now_ms(CLOCK_MONOTONIC) < end;) {
  }
  CHECK(real > r && virt > v);
  CHECK(getitimer(ITIMER_PROF, &now) == 0 && now.it_value.tv_sec > 400 && now.it_value.tv_sec <= 500);
  CHECK(prof == 0);
  return survived();
}
