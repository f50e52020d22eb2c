// A thread that blocks everything, by libc and with the raw call, computing without system calls.
#include "feature.h"
static volatile int stop;
static volatile unsigned long count[2];
static void* body(void* a) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  unsigned long* n = (unsigned long*)&count[(long)a];
  if (a) sigdelset(&all, SIGTERM), pthread_sigmask(SIG_SETMASK, &all, NULL);
  while (!stop) ++*(volatile unsigned long*)n;
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  CHECK(sigismember(&now, SIGINT) == 1 && sigismember(&now, SIGTERM) == !a);
  return NULL;
}
int main(void) {
  pthread_t a = start_thread(body, (void*)0), b = start_thread(body, (void*)1);
  ready_and_wait();
  unsigned long before[2] = {count[0], count[1]};
  for (int i = 0; i < 20000 && (count[0] == before[0] || count[1] == before[1]); ++i) sleep_ms(1);
  CHECK(count[0] != before[0] && count[1] != before[1]);
  stop = 1;
  pthread_join(a, NULL), pthread_join(b, NULL);
  return survived();
}
