// A pseudo terminal whose owner and mode the program chose.
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
int main(void) {
  int m = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0);
  const char* name = ptsname(m);
  int s = open(name, O_RDWR | O_NOCTTY);
  struct stat before, now;
  CHECK(s >= 0 && fchmod(s, 0640) == 0);
  if (geteuid() == 0) CHECK(fchown(s, 1234, 5678) == 0);
  CHECK(stat(name, &before) == 0);
  ready_and_wait();
  CHECK(stat(name, &now) == 0);
  CHECK(now.st_mode == before.st_mode && now.st_uid == before.st_uid && now.st_gid == before.st_gid);
  CHECK(fstat(s, &now) == 0 && now.st_mode == before.st_mode && now.st_rdev == before.st_rdev);
  return survived();
}
