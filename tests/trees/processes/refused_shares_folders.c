// Two orphans that have their working directory in common (CLONE_FS), from a parent that has ended:
// the program that took them on has another one.
#include <sched.h>
#include <sys/prctl.h>
#include "tree.h"
static char stack[2][65536] __attribute__((aligned(16)));
static pid_t program;
static int ready[2];
static int orphan(void* unused) {
  (void)unused;
  while (getppid() != program) sleep_ms(1);
  CHECK(write(ready[1], "r", 1) == 1);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  _exit(50);
}
int main(void) {
  program = getpid();
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(ready) == 0);
  const pid_t between = fork();
  if (between == 0) {
    for (int i = 0; i < 2; ++i)
      CHECK(clone(orphan, stack[i] + sizeof(stack[i]), SIGCHLD | CLONE_FS, NULL) > 0);
    _exit(0);
  }
  char byte;
  CHECK(wait_status(between) == 0);
  for (int i = 0; i < 2; ++i) CHECK(read(ready[0], &byte, 1) == 1);
  ready_and_wait();
  for (int i = 0, status; i < 2; ++i)
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 50);
  return survived();
}
