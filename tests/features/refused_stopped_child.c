// Nobody answers in a child that is stopped.
#include "feature.h"
int main(void) {
  pid_t child = fork();
  if (child == 0) raise(SIGSTOP), _exit(9);
  int status;
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  ready_and_wait();
  CHECK(kill(child, SIGCONT) == 0);
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
  return survived();
}
