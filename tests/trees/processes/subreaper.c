// A grandchild whose parent has ended, with a program that has taken on such orphans.
#include <sys/prctl.h>
#include "tree.h"
int main(void) {
  int number[2], end[2];
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(number) == 0 && pipe(end) == 0);
  pid_t between = fork(), orphan;
  if (between == 0) {
    if (fork() == 0) {
      char c;
      pid_t self = getpid();
      close(end[1]);
      CHECK(write(number[1], &self, sizeof(self)) == sizeof(self));
      _exit(read(end[0], &c, 1) == 0 ? 11 : 12);
    }
    _exit(0);
  }
  CHECK(wait_status(between) == 0 && read(number[0], &orphan, sizeof(orphan)) == sizeof(orphan));
  ready_and_wait();
  close(end[1]);
  CHECK(wait_status(orphan) == 11);
  return survived();
}
