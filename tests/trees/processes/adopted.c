// A program that takes on orphans: one in a session whose leader has ended, one in a session whose
// leader is another child of the program.
#include <sys/prctl.h>
#include "tree.h"
static int number[2], end[2];
static pid_t program;
static void orphan(void) {
  pid_t self[3] = {getpid(), getsid(0), getpgid(0)};
  char c;
  while (getppid() != program) sleep_ms(1);
  CHECK(write(number[1], self, sizeof self) == sizeof self);
  close(end[1]);
  CHECK(read(end[0], &c, 1) == 0);
  _exit(getsid(0) == self[1] && getpgid(0) == self[2] && getppid() == program ? 11 : 12);
}
int main(void) {
  program = getpid();
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(number) == 0 && pipe(end) == 0);
  pid_t leader = fork();
  if (leader == 0) {  // its child's child is in its session
    char c;
    setsid();
    pid_t between = fork();
    if (between == 0) {
      if (fork() == 0) orphan();
      _exit(0);
    }
    close(end[1]);
    CHECK(wait_status(between) == 0 && read(end[0], &c, 1) == 0);
    _exit(21);
  }
  pid_t gone = fork();
  if (gone == 0) {  // a leader that ends
    setsid();
    if (fork() == 0) orphan();
    _exit(0);
  }
  pid_t got[2][3];
  CHECK(wait_status(gone) == 0);
  for (int i = 0; i < 2; ++i) CHECK(read(number[0], got[i], sizeof got[i]) == sizeof got[i]);
  ready_and_wait();
  for (int i = 0; i < 2; ++i)
    CHECK(getsid(got[i][0]) == got[i][1] && getpgid(got[i][0]) == got[i][2]);
  close(end[1]);
  CHECK(wait_status(got[0][0]) == 11 && wait_status(got[1][0]) == 11);
  CHECK(wait_status(leader) == 21);
  return survived();
}
