// A thread that takes SIGUSR1 by sigwait gets the signals it is sent.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "pause.h"

int main(int argc, char** argv) {
  sigset_t set;
  int number = 0;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  wait_for_snapshot(argc, argv);
  kill(getpid(), SIGUSR1);
  sigwait(&set, &number);
  printf("sigwait: %d\n", number == SIGUSR1);
}
