// A child that tells of its end by another signal than SIGCHLD, or by none.
#include "feature.h"
static pid_t clone_with(int exit_signal) {
  const pid_t child = (pid_t)syscall(SYS_clone, exit_signal, 0, 0, 0, 0);
  CHECK(child >= 0);
  if (child) return child;
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  _exit(7);
}
int main(void) {
  signal(SIGUSR2, SIG_IGN);
  const pid_t child = clone_with(SIGUSR2), silent = clone_with(0);
  sleep_ms(50);
  ready_and_wait();
  int status;
  CHECK(waitpid(child, &status, __WALL) == child && WEXITSTATUS(status) == 7);
  CHECK(waitpid(silent, &status, __WALL) == silent && WEXITSTATUS(status) == 7);
  return survived();
}
