// Children that have ended and were not waited for still tell how they ended, and have their names.
#include <sys/prctl.h>
#include "tree.h"
static const char* name_of(pid_t pid) {
  static char name[32];
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/comm", pid);
  FILE* f = fopen(path, "r");
  CHECK(f && fgets(name, sizeof(name), f));
  fclose(f);
  return name;
}
int main(void) {
  pid_t quiet = fork();
  if (quiet == 0) _exit(42);
  pid_t killed = fork();
  if (killed == 0) {
    prctl(PR_SET_NAME, "odd (name");
    kill(getpid(), SIGSTOP);
  }
  CHECK(waitpid(killed, NULL, WUNTRACED) == killed);
  kill(killed, SIGKILL);
  siginfo_t info;
  CHECK(waitid(P_PID, quiet, &info, WEXITED | WNOWAIT) == 0);
  CHECK(waitid(P_PID, killed, &info, WEXITED | WNOWAIT) == 0);
  ready_and_wait();
  int status;
  CHECK(strcmp(name_of(quiet), "zombies\n") == 0 && strcmp(name_of(killed), "odd (name\n") == 0);
  CHECK(waitpid(quiet, &status, WNOHANG) == quiet && WEXITSTATUS(status) == 42);
  CHECK(waitpid(killed, &status, WNOHANG) == killed && WTERMSIG(status) == SIGKILL);
  CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
  return survived();
}
