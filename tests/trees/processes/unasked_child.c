// A program that takes orphans on, and waits for whatever child there is: it is told of those alone
// that its own processes left behind, not of the process that takes its snapshot.
#include <sys/prctl.h>
#include "tree.h"
static volatile int told;
static void on_child(int sig) { (void)sig, ++told; }
static int session_of_mine(void) { return getsid(0) == getpid() ? 1 : 60; }
int main(void) {
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  struct sigaction a = {.sa_handler = on_child, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGCHLD, &a, NULL) == 0);
  const pid_t between = fork();
  if (between == 0) {
    fork_waiting(session_of_mine);
    _exit(61);
  }
  CHECK(wait_status(between) == 61 && told == 1);
  ready_and_wait();
  int status;
  pid_t ended;
  for (int i = 0; (ended = waitpid(-1, &status, WNOHANG)) == 0; ++i) CHECK(i < 2000), sleep_ms(5);
  // (It finds itself with another parent than the one it remembers.)
  CHECK(ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 100);
  sleep_ms(300);
  CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD && told == 2);
  return survived();
}
