// A pipe that tells by a signal of its own choice: owner, signal, and the number it tells.
#include "feature.h"
static volatile int told;
static void arrived(int n, siginfo_t* info, void* context) {
  (void)n, (void)context;
  told = info->si_fd;
}
int main(void) {
  int p[2];
  CHECK(pipe(p) == 0);
  struct sigaction a = {.sa_sigaction = arrived, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGRTMIN + 3, &a, NULL) == 0);
  CHECK(fcntl(p[0], F_SETOWN, getpid()) == 0 && fcntl(p[0], F_SETSIG, SIGRTMIN + 3) == 0);
  CHECK(fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
  ready_and_wait();
  CHECK(fcntl(p[0], F_GETOWN) == getpid() && fcntl(p[0], F_GETSIG) == SIGRTMIN + 3);
  CHECK(fcntl(p[0], F_GETFL) & O_ASYNC);
  told = -1;
  CHECK(write(p[1], "x", 1) == 1);
  for (int i = 0; i < 200 && told < 0; ++i) sleep_ms(10);
  CHECK(told == p[0]);
  return survived();
}
