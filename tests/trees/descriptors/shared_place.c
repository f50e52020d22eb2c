// A working directory and a umask that a parent and its children have in common (CLONE_FS).
#include <sched.h>
#include "tree.h"
static char stack[2][65536] __attribute__((aligned(16)));
static int now[2];
static int move(void* unused) {
  (void)unused;
  char byte;
  CHECK(read(now[0], &byte, 1) == 1);
  umask(0123);
  return chdir("folder") == 0 ? 50 : 1;
}
static int stay(void* unused) {
  (void)unused;
  char path[512];
  while (access("../go_on", F_OK) != 0) sleep_ms(5);  // it is in the folder by then
  return getcwd(path, sizeof(path)) && strcmp(path + strlen(path) - 7, "/folder") == 0 ? 50 : 1;
}
int main(void) {
  CHECK(mkdir("folder", 0700) == 0 && pipe(now) == 0);
  const pid_t child = clone(move, stack[0] + sizeof(stack[0]), SIGCHLD | CLONE_FS, NULL);
  const pid_t other = clone(stay, stack[1] + sizeof(stack[1]), SIGCHLD | CLONE_FS, NULL);
  char path[512];
  ready_and_wait();
  CHECK(write(now[1], "m", 1) == 1);
  CHECK(child > 0 && wait_status(child) == 50);
  CHECK(other > 0 && wait_status(other) == 50);
  CHECK(getcwd(path, sizeof(path)) && strcmp(path + strlen(path) - 7, "/folder") == 0);
  CHECK(umask(0) == 0123);
  return survived();
}
