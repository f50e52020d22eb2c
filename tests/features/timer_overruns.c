// A timer whose signal waits to be delivered while it expires again and again: the signal comes, with
// its value, once; how often it has expired meanwhile is not known after a restore.
#include "feature.h"
int main(void) {
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 7, .sigev_value.sival_int = 9};
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGRTMIN + 7);
  CHECK(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  // Not more often: where the timer expires again while a snapshot reads the signals, the count begins anew.
  struct itimerspec often = {{0, 20000000}, {0, 20000000}}, never = {{0, 0}, {0, 0}};
  CHECK(timer_settime(timer, 0, &often, NULL) == 0);
  sleep_ms(400);
  ready_and_wait();
  siginfo_t info;
  const struct timespec second = {1, 0}, none = {0, 0};
  CHECK(sigtimedwait(&signals, &info, &second) == SIGRTMIN + 7);
  CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 9);
  if (!was_restored()) CHECK(timer_getoverrun(timer) > 10);
  // It goes on.
  CHECK(sigtimedwait(&signals, &info, &second) == SIGRTMIN + 7 && info.si_value.sival_int == 9);
  CHECK(timer_settime(timer, 0, &never, NULL) == 0);
  while (sigtimedwait(&signals, &info, &none) > 0) continue;
  CHECK(timer_delete(timer) == 0);
  return survived();
}
