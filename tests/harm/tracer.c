// A process that traces its child, as strace and gdb do, and passes on what it gets.
#include <sys/ptrace.h>

#include "../features/feature.h"

int main() {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(7);
  }
  CHECK(ptrace(PTRACE_SEIZE, child, 0, 0) == 0);
  CHECK(write(1, "ready\n", 6) == 6);
  for (;;) {
    int status;
    CHECK(waitpid(child, &status, __WALL) == child);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 7);
      return survived();
    }
    CHECK(WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status)) == 0);
  }
}
