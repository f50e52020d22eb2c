// A child of vfork that takes its time: until it is over its parent takes no signal.
#include "../features/feature.h"

int main() {
  pid_t child = vfork();
  if (!child) {
    ready_and_wait();
    _exit(7);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  return survived();
}
