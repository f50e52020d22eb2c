// A thread that takes SIGUSR1 by sigwait gets the signals it is sent.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main() {
  sigset_t set;
  int number = 0;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  kill(getpid(), SIGUSR1);
  sigwait(&set, &number);
  printf("sigwait: %d\n", number == SIGUSR1);
}
