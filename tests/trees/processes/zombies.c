// Children that have ended and were not waited for still tell how they ended.
#include "tree.h"
int main(void) {
  pid_t quiet = fork();
  if (quiet == 0) _exit(42);
  pid_t killed = fork();
  if (killed == 0) pause();
  kill(killed, SIGKILL);
  siginfo_t info;
  CHECK(waitid(P_PID, quiet, &info, WEXITED | WNOWAIT) == 0);
  CHECK(waitid(P_PID, killed, &info, WEXITED | WNOWAIT) == 0);
  ready_and_wait();
  int status;
  CHECK(waitpid(quiet, &status, WNOHANG) == quiet && WEXITSTATUS(status) == 42);
  CHECK(waitpid(killed, &status, WNOHANG) == killed && WTERMSIG(status) == SIGKILL);
  CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
  return survived();
}
