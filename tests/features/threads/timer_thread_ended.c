// Timers that signal a thread (SIGEV_THREAD_ID): one whose thread has ended since counts on without a signal, keeps its
// number, its setting and its place; another's thread lives.
#include "feature.h"
#include <stdatomic.h>
static atomic_int worker, ended, signals;
static void count(int sig, siginfo_t* i, void* c) {
  (void)sig, (void)i, (void)c;
  ++signals;
}
static void* live(void* a) {
  atomic_int* tid = a;
  *tid = (int)syscall(SYS_gettid);
  while (tid == &worker) sleep_ms(1000);
  while (*tid > 0) sleep_ms(1);
  return NULL;
}
static timer_t make(int tid, int sig) {
  struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig};
  timer_t t;
  e._sigev_un._tid = tid;
  CHECK(timer_create(CLOCK_MONOTONIC, &e, &t) == 0);
  return t;
}
int main(void) {
  start_thread(live, &worker);
  pthread_t t = start_thread(live, &ended);
  while (!worker || !ended) sleep_ms(1);
  struct sigaction a = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART};
  CHECK(sigaction(SIGRTMIN + 6, &a, NULL) == 0);
  const timer_t gone = make(ended, SIGRTMIN + 7), there = make(worker, SIGRTMIN + 6);  // (the first one's signal would end us)
  struct itimerspec often = {{0, 10000000}, {0, 10000000}}, far = {{3, 0}, {1000, 0}}, now;
  ended = -1;
  pthread_join(t, NULL);
  CHECK(timer_settime(gone, 0, &far, NULL) == 0 && timer_settime(there, 0, &often, NULL) == 0);
  ready_and_wait();
  const int before = signals;
  for (int i = 0; i < 2000 && signals == before; ++i) sleep_ms(2);
  CHECK(signals > before);
  CHECK(timer_gettime(gone, &now) == 0);
  CHECK(now.it_value.tv_sec > 900 && now.it_value.tv_sec <= 1000 && now.it_interval.tv_sec == 3);
  CHECK(timer_settime(gone, 0, &often, NULL) == 0);
  sleep_ms(50);
  CHECK(timer_delete(gone) == 0 && timer_delete(there) == 0);
  return survived();
}
