// A process whose parent ended in another session, and whom a sub-reaper further up took on:
// neither that nor any sister of its own was ever in its session.
#include <sys/prctl.h>
#include "tree.h"
static int told[2];
static int wait_here(int result) {
  const pid_t session = getsid(0);
  while (access("go_on", F_OK) != 0) sleep_ms(3);
  return getsid(0) == session ? result : 1;
}
static void lead(void) {
  CHECK(setsid() == getpid());
  pid_t ends = fork();
  if (ends == 0) {
    if (fork() == 0) {
      _exit(wait_here(51));
    }
    _exit(0);
  }
  CHECK(wait_status(ends) == 0 && write(told[1], "t", 1) == 1);
  _exit(wait_here(52));
}
int main(void) {
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 && pipe(told) == 0);
  const pid_t between = fork();
  if (between == 0) {
    const pid_t leader = fork();
    if (leader == 0) lead();
    _exit(wait_status(leader) + 1);
  }
  char byte;
  CHECK(read(told[0], &byte, 1) == 1);
  ready_and_wait();
  CHECK(wait_status(between) == 53);
  int status;
  CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 51);
  return survived();
}
