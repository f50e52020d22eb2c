// A program that uses SIGUSR1 itself: its handler, masks, SIG_IGN and queries go on as it asked.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pause.h"

static volatile sig_atomic_t seen;
static void handler(int number, siginfo_t* info, void* context) {
  (void)context;
  if (number == SIGUSR1 && info->si_pid == getpid()) ++seen;
}

int main(int argc, char** argv) {
  struct sigaction action, query;
  sigaction(SIGUSR1, NULL, &query);
  printf("at first: %s\n", query.sa_handler == SIG_DFL ? "default" : "something");
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGUSR1, NULL, &query);
  printf("own handler is shown: %d\n",
         query.sa_sigaction == handler && (query.sa_flags & SA_SIGINFO) != 0);
  wait_for_snapshot(argc, argv);
  for (int i = 0; i < 5; ++i) raise(SIGUSR1);
  printf("seen: %d\n", (int)seen);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  raise(SIGUSR1);
  printf("blocked: %d\n", (int)seen);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  printf("unblocked: %d\n", (int)seen);
  signal(SIGUSR1, SIG_IGN);
  raise(SIGUSR1);
  sigaction(SIGUSR1, NULL, &query);
  printf("ignored: %d %d\n", (int)seen, query.sa_handler == SIG_IGN);
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  sigaction(SIGUSR1, NULL, &query);
  printf("once: %d %d %d\n", (int)seen, query.sa_handler == SIG_DFL,
         (query.sa_flags & SA_SIGINFO) != 0);
}
