// Threads in sigwait of everything and in sigtimedwait; signals sent afterwards arrive there.
#include "feature.h"
static int got;
static void* body(void* a) {
  (void)a;
  sigset_t all;
  sigfillset(&all);
  int sig = 0;
  CHECK(sigwait(&all, &sig) == 0);
  got = sig;
  return NULL;
}
static void* timed(void* a) {
  (void)a;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 5);
  struct timespec t = {600, 0};
  siginfo_t info;
  CHECK(sigtimedwait(&set, &info, &t) == SIGRTMIN + 5);
  CHECK(info.si_value.sival_int == 77);
  return NULL;
}
int main(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  pthread_t a = start_thread(body, NULL), b = start_thread(timed, NULL);
  sleep_ms(50);
  ready_and_wait();
  CHECK(got == 0);
  CHECK(pthread_sigqueue(b, SIGRTMIN + 5, (union sigval){.sival_int = 77}) == 0);
  pthread_join(b, NULL);
  CHECK(pthread_kill(a, SIGHUP) == 0);
  pthread_join(a, NULL);
  CHECK(got == SIGHUP);
  return survived();
}
