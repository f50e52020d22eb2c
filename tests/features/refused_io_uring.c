// io_uring cannot be put back: refused with the number of the descriptor, and the program goes on.
#include "feature.h"
int main(void) {
  char parameters[120] = {0};
  int fd = (int)syscall(SYS_io_uring_setup, 4, parameters);
  if (fd < 0) fd = (int)syscall(SYS_perf_event_open, parameters, 0, -1, -1, 0);
  CHECK(fd >= 0);
  ready_and_wait();
  CHECK(fcntl(fd, F_GETFD) >= 0);
  return survived();
}
