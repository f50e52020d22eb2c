// A threshold of memory pressure that poll() waits for: refused by name.
#include <poll.h>
#include "feature.h"
int main(void) {
  static const char kThreshold[] = "some 500000 2000000";
  const int fd = open("/proc/pressure/memory", O_RDWR | O_NONBLOCK);
  if (fd < 0 || write(fd, kThreshold, sizeof(kThreshold)) < 0) absent("/proc/pressure/memory");
  ready_and_wait();
  struct pollfd one = {fd, POLLPRI, 0};
  CHECK(poll(&one, 1, 0) >= 0 && !(one.revents & POLLERR));
  return survived();
}
