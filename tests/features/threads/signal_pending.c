// Blocked signals queued for the process and for one thread keep their number, order and siginfo.
#include "feature.h"
static volatile int go, blocked;
static void take(int sig, int code, int value) {
  sigset_t set;
  sigemptyset(&set), sigaddset(&set, sig);
  struct timespec now = {0, 0};
  siginfo_t info = {0};
  CHECK(sigtimedwait(&set, &info, &now) == sig);
  CHECK(info.si_code == code);
  CHECK(info.si_value.sival_int == value);
  CHECK(info.si_uid == getuid());
}
static void* body(void* a) {
  blocked = 1;
  while (!go) sleep_ms(2);
  take(SIGRTMIN + 3, SI_QUEUE, 31), take(SIGRTMIN + 3, SI_QUEUE, 32);
  sigset_t set;
  CHECK(sigpending(&set) == 0 && sigismember(&set, SIGHUP) == 1);
  return a;
}
int main(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 2), sigaddset(&set, SIGRTMIN + 3), sigaddset(&set, SIGHUP), sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  pthread_t t = start_thread(body, NULL);
  while (!blocked) sleep_ms(1);
  for (int i = 0; i < 50; ++i) CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 20 + i}) == 0);
  CHECK(pthread_sigqueue(t, SIGRTMIN + 3, (union sigval){.sival_int = 31}) == 0);
  CHECK(pthread_sigqueue(t, SIGRTMIN + 3, (union sigval){.sival_int = 32}) == 0);
  CHECK(kill(getpid(), SIGHUP) == 0);
  CHECK(kill(getpid(), SIGUSR2) == 0);
  ready_and_wait();
  for (int i = 0; i < 50; ++i) take(SIGRTMIN + 2, SI_QUEUE, 20 + i);
  go = 1;
  pthread_join(t, NULL);
  sigemptyset(&set), sigaddset(&set, SIGUSR2);
  siginfo_t info;
  CHECK(sigwaitinfo(&set, &info) == SIGUSR2 && info.si_code == SI_USER);
  return survived();
}
