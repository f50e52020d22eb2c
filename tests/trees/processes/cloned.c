// Children of clone(2) and of a raw fork, for which no handler of libc runs.
#include <sched.h>
#include "tree.h"
static char stack[2][65536] __attribute__((aligned(16)));
static int wait_in(void* folder) {
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  return chdir(folder) == 0 ? 50 : 1;
}
int main(void) {
  CHECK(mkdir("own", 0700) == 0);
  const pid_t own = clone(wait_in, stack[0] + sizeof(stack[0]), SIGCHLD, "own");
  const pid_t raw = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (raw == 0) _exit(wait_in("own"));
  CHECK(own > 0 && raw > 0);
  char path[512], now[512];
  CHECK(getcwd(path, sizeof(path)));
  ready_and_wait();
  CHECK(wait_status(own) == 50 && wait_status(raw) == 50);
  CHECK(getcwd(now, sizeof(now)) && strcmp(path, now) == 0);
  return survived();
}
