// A folder that tells of changes in it by a signal (dnotify).
#include "feature.h"
static volatile int told;
static void on_change(int sig) { told = sig; }
int main(void) {
  signal(SIGRTMIN + 3, on_change);
  CHECK(mkdir("folder", 0700) == 0);
  int fd = open("folder", O_RDONLY | O_DIRECTORY);
  CHECK(fd >= 0 && fcntl(fd, F_SETSIG, SIGRTMIN + 3) == 0);
  CHECK(fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT) == 0);
  ready_and_wait();
  CHECK(close(open("folder/file", O_CREAT | O_WRONLY, 0600)) == 0);
  CHECK(told == SIGRTMIN + 3);
  return survived();
}
