// timer_create of every kind of notification, on several clocks, one of them deleted in between.
#include "feature.h"
static volatile int handled, called, in_thread;
static pid_t worker;
static void handler(int s, siginfo_t* i, void* c) {
  (void)s, (void)c;
  if (i->si_code == SI_TIMER && i->si_value.sival_int == 42) ++handled;
}
static void to_thread(int s, siginfo_t* i, void* c) {
  (void)s, (void)i, (void)c;
  if (syscall(SYS_gettid) == worker) ++in_thread;
}
static void function(union sigval v) { if (v.sival_int == 43) ++called; }
static void* body(void* a) {
  worker = (pid_t)syscall(SYS_gettid);
  for (;;) sleep_ms(1000);
  return a;
}
int main(void) {
  start_thread(body, NULL);
  while (!worker) sleep_ms(1);
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_RESTART};
  a.sa_sigaction = handler;
  sigaction(SIGRTMIN + 4, &a, NULL);
  a.sa_sigaction = to_thread;
  sigaction(SIGRTMIN + 6, &a, NULL);
  timer_t gone, t[5];
  struct sigevent e = {0};
  e.sigev_notify = SIGEV_NONE;
  CHECK(timer_create(CLOCK_REALTIME, &e, &gone) == 0);
  CHECK(timer_create(CLOCK_REALTIME, &e, &t[0]) == 0);
  CHECK(timer_delete(gone) == 0);
  e.sigev_notify = SIGEV_SIGNAL, e.sigev_signo = SIGRTMIN + 4, e.sigev_value.sival_int = 42;
  CHECK(timer_create(CLOCK_MONOTONIC, &e, &t[1]) == 0);
  e.sigev_notify = SIGEV_THREAD, e.sigev_value.sival_int = 43, e.sigev_notify_function = function;
  CHECK(timer_create(CLOCK_BOOTTIME, &e, &t[2]) == 0);
  e.sigev_notify = SIGEV_THREAD_ID, e.sigev_signo = SIGRTMIN + 6, e._sigev_un._tid = worker;
  CHECK(timer_create(CLOCK_MONOTONIC, &e, &t[3]) == 0);
  e.sigev_notify = SIGEV_SIGNAL, e.sigev_signo = SIGHUP;
  CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &e, &t[4]) == 0);
  struct itimerspec often = {{0, 10000000}, {0, 10000000}}, far = {{3, 0}, {1000, 0}}, now;
  CHECK(timer_settime(t[0], 0, &far, NULL) == 0 && timer_settime(t[4], 0, &far, NULL) == 0);
  for (int i = 1; i < 4; ++i) CHECK(timer_settime(t[i], 0, &often, NULL) == 0);
  ready_and_wait();
  int h = handled, c = called, n = in_thread;
  for (int i = 0; i < 2000 && (handled == h || called == c || in_thread == n); ++i) sleep_ms(2);
  CHECK(handled > h);
  CHECK(called > c);
  CHECK(in_thread > n);
  for (int i = 0; i < 5; i += 4) {
    CHECK(timer_gettime(t[i], &now) == 0);
    CHECK(now.it_value.tv_sec > 900 && now.it_value.tv_sec <= 1000 && now.it_interval.tv_sec == 3);
  }
  for (int i = 0; i < 5; ++i) CHECK(timer_delete(t[i]) == 0);
  e.sigev_notify = SIGEV_NONE;
  CHECK(timer_create(CLOCK_REALTIME, &e, &t[0]) == 0);
  return survived();
}
