// Programs of several processes (../features/feature.h says how each of them goes).
#pragma once
#include "../features/feature.h"

// Waits for a child that exits by itself.
static inline int wait_status(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  if (WEXITSTATUS(status) != 50) dprintf(1, "child %d ended with %d\n", child, WEXITSTATUS(status));
  return WEXITSTATUS(status);
}

// A child that lives until its parent says go on; then it must find itself where it was.
static inline pid_t fork_waiting(int (*check)(void)) {
  pid_t parent = getpid();
  pid_t child = fork();
  CHECK(child >= 0);
  if (child) return child;
  pid_t self = getpid(), group = getpgid(0), session = getsid(0);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  if (getpid() != self || getppid() != parent || getpgid(0) != group || getsid(0) != session)
    _exit(100);
  _exit(check ? check() : 0);
}
