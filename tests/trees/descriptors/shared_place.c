// A working directory and a umask that parent and child have in common (CLONE_FS).
#include <sched.h>
#include "tree.h"
static char stack[65536] __attribute__((aligned(16)));
static int now[2];
static int move(void* unused) {
  (void)unused;
  char byte;
  CHECK(read(now[0], &byte, 1) == 1);
  umask(0123);
  return chdir("folder") == 0 ? 50 : 1;
}
int main(void) {
  CHECK(mkdir("folder", 0700) == 0 && pipe(now) == 0);
  const pid_t child = clone(move, stack + sizeof(stack), SIGCHLD | CLONE_FS, NULL);
  char path[512];
  ready_and_wait();
  CHECK(write(now[1], "m", 1) == 1);
  CHECK(child > 0 && wait_status(child) == 50);
  CHECK(getcwd(path, sizeof(path)) && strcmp(path + strlen(path) - 7, "/folder") == 0);
  CHECK(umask(0) == 0123);
  return survived();
}
