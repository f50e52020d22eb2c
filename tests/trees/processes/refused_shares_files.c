// A child that has its descriptors, but not its memory, in common with its parent (CLONE_FILES).
#include <sched.h>
#include "tree.h"
static char stack[65536] __attribute__((aligned(16)));
static int close_it(void* fd) {
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  return close(*(int*)fd) == 0 ? 50 : 1;
}
int main(void) {
  int fd = open("/dev/null", O_RDONLY);
  const pid_t child = clone(close_it, stack + sizeof(stack), SIGCHLD | CLONE_FILES, &fd);
  ready_and_wait();
  CHECK(child > 0 && wait_status(child) == 50);
  CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
  return survived();
}
