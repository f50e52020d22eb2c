// Namespaces of the process's own that are open: they are its own afterwards, too.
#include "feature.h"
static int is_own(int fd, const char* name) {
  struct stat there, own;
  CHECK(fstat(fd, &there) == 0 && stat(name, &own) == 0);
  return there.st_ino == own.st_ino && there.st_dev == own.st_dev;
}
int main(void) {
  int network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC),
      user = open("/proc/self/ns/user", O_RDONLY);
  CHECK(network >= 0 && user >= 0);
  ready_and_wait();
  CHECK(is_own(network, "/proc/self/ns/net") && is_own(user, "/proc/self/ns/user"));
  CHECK(fcntl(network, F_GETFD) == FD_CLOEXEC && fcntl(user, F_GETFD) == 0);
  return survived();
}
