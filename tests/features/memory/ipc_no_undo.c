// A process of one thread that has never used SEM_UNDO has no list of what is to be undone, and neither has its child: kcmp tells.
#include <linux/kcmp.h>
#include "feature.h"
static void check_lists(void) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) pause(), _exit(0);
  const long same = syscall(SYS_kcmp, getpid(), child, KCMP_SYSVSEM, 0, 0);
  const int error = errno;
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  errno = error;
  if (same < 0) absent("kcmp");
  CHECK(same == 0);
}
int main(void) {
  check_lists();
  ready_and_wait();
  check_lists();
  return survived();
}
