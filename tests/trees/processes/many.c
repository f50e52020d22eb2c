// Many children and grandchildren, in groups and sessions of their own.
#include "tree.h"
static pid_t fork_in_group(pid_t group, int session) {
  int gate[2];
  CHECK(pipe(gate) == 0);
  pid_t child = fork();
  if (child == 0) {
    if (session)
      setsid();
    else
      setpgid(0, group);
    close(gate[0]), close(gate[1]);
    pid_t grandchild = fork_waiting(NULL);
    pid_t self = getpid(), parent = getppid(), own = getpgid(0), sid = getsid(0);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    if (getpid() != self || getppid() != parent || getpgid(0) != own || getsid(0) != sid)
      _exit(101);
    _exit(wait_status(grandchild));
  }
  char c;
  close(gate[1]);
  CHECK(read(gate[0], &c, 1) == 0);  // its group is made
  close(gate[0]);
  return child;
}
int main(void) {
  pid_t child[12];
  child[0] = fork_in_group(0, 0);
  child[1] = fork_in_group(child[0], 0);  // as a shell's pipeline
  child[2] = fork_in_group(0, 1);
  for (int i = 3; i < 12; ++i) child[i] = fork_waiting(NULL);
  ready_and_wait();
  for (int i = 0; i < 12; ++i) CHECK(wait_status(child[i]) == 0);
  return survived();
}
