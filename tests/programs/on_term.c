// on_term default|handler|ignored|waiting STEPS PACE_MS: a program that SIGTERM ends in its own
// way.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t told, code = -100, blocked;

static void handler(int sig, siginfo_t* info, void* context) {
  sigset_t now;
  (void)context;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  blocked =
      sigismember(&now, SIGTERM) + 2 * sigismember(&now, SIGUSR2) + 4 * sigismember(&now, SIGHUP);
  code = info->si_code;
  told = sig;
}

static void* wait_for_it(void* set) {
  int sig = 0;
  sigwait(set, &sig);
  told = sig;
  return NULL;
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "default";
  long steps = argc > 2 ? atol(argv[2]) : 40, pace = argc > 3 ? atol(argv[3]) : 20;
  struct sigaction action = {0}, seen;
  static sigset_t set;
  pthread_t thread;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = handler;
  sigaddset(&action.sa_mask, SIGUSR2);
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (!strcmp(mode, "handler")) sigaction(SIGTERM, &action, NULL);
  if (!strcmp(mode, "ignored")) signal(SIGTERM, SIG_IGN);
  if (!strcmp(mode, "waiting")) {
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_create(&thread, NULL, wait_for_it, &set);
  }
  sigaction(SIGTERM, NULL, &seen);  // shows what was asked for, and nobody else
  printf("action %d\n", seen.sa_handler == SIG_DFL     ? 0
                        : seen.sa_handler == SIG_IGN   ? 1
                        : seen.sa_sigaction == handler ? 2
                                                       : 3);
  fflush(stdout);
  for (long step = 1; step <= steps; ++step) {
    printf("step %ld\n", step);
    fflush(stdout);
    usleep((useconds_t)pace * 1000);
    if (told) {
      printf("told to end: code %d, blocked %d\n", (int)code, (int)blocked);
      return 3;
    }
  }
  printf("done\n");
  return 0;
}
