// io_uring cannot be put back: refused with the number of the descriptor, and the program goes on.
#include "feature.h"
int main(void) {
  char parameters[120] = {0};
  long r;  // through libc it would find none (tests/harm/ring_or_not.c)
  asm volatile("syscall" : "=a"(r) : "a"(SYS_io_uring_setup), "D"(4L), "S"(parameters) : "rcx", "r11", "memory");
  int fd = (int)r;
  if (fd < 0) fd = (int)syscall(SYS_perf_event_open, parameters, 0, -1, -1, 0);
  CHECK(fd >= 0);
  ready_and_wait();
  CHECK(fcntl(fd, F_GETFD) >= 0);
  return survived();
}
