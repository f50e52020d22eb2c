// A timer whose signal waits to be delivered while it expires again and again: the signal comes, with
// its value, once, and tells of all expirations until it is taken; how often the timer has expired is
// not known after a restore.
#include "feature.h"
enum { kEveryMs = 2 };
int main(void) {
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 7, .sigev_value.sival_int = 9};
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGRTMIN + 7);
  CHECK(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  struct itimerspec often = {{0, kEveryMs * 1000000}, {0, kEveryMs * 1000000}}, never = {{0, 0}, {0, 0}};
  const int before = was_restored();
  const int64_t start = now_ms(CLOCK_MONOTONIC);
  CHECK(timer_settime(timer, 0, &often, NULL) == 0);
  sleep_ms(100);
  ready_and_wait();
  sleep_ms(100);
  siginfo_t info;
  const struct timespec second = {1, 0}, none = {0, 0};
  const int64_t least = (now_ms(CLOCK_MONOTONIC) - start) / kEveryMs - 2;
  CHECK(sigtimedwait(&signals, &info, &second) == SIGRTMIN + 7);
  CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 9);
  const int told = timer_getoverrun(timer);
  CHECK(told >= least || was_restored() != before);
  // It goes on.
  CHECK(sigtimedwait(&signals, &info, &second) == SIGRTMIN + 7 && info.si_value.sival_int == 9);
  CHECK(timer_settime(timer, 0, &never, NULL) == 0);
  while (sigtimedwait(&signals, &info, &none) > 0) continue;
  CHECK(timer_delete(timer) == 0);
  return survived();
}
