// A child of the first process that waits for a child of vfork: until that is over it takes no signal.
#include "../features/feature.h"

static int wait_for_vforked(void) {
  pid_t grandchild = vfork();
  if (!grandchild) {
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(7);
  }
  int status;
  return waitpid(grandchild, &status, 0) == grandchild && WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 5 : 1;
}

int main() {
  pid_t child = fork();
  if (!child) _exit(wait_for_vforked());
  sleep_ms(100);
  ready_and_wait();
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
  return survived();
}
