// A controlling terminal of the program's own making: its slave is closed, /dev/tty is open.
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
int main(void) {
  if (getsid(0) != getpid()) return ready_and_wait(), survived();
  int m = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0);
  int s = open(ptsname(m), O_RDWR | O_NOCTTY);
  CHECK(s >= 0 && ioctl(s, TIOCSCTTY, 0) == 0);
  int tty = open("/dev/tty", O_RDWR);
  struct termios t;
  CHECK(tty >= 0 && tcgetattr(tty, &t) == 0);
  t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
  t.c_oflag &= ~(tcflag_t)OPOST;
  CHECK(tcsetattr(tty, TCSANOW, &t) == 0 && close(s) == 0);
  CHECK(write(m, "typed", 5) == 5);
  ready_and_wait();
  char text[16];
  struct stat a, b;
  CHECK(tcgetpgrp(tty) == getpgrp() && tcgetsid(m) == getpid());
  CHECK(read(tty, text, 16) == 5 && memcmp(text, "typed", 5) == 0);
  CHECK(write(tty, "x\n", 2) == 2 && read(m, text, 16) == 2);
  int again = open("/dev/tty", O_RDWR);
  CHECK(again >= 0 && fstat(again, &a) == 0 && fstat(tty, &b) == 0 && a.st_rdev == b.st_rdev);
  CHECK(tcgetattr(tty, &t) == 0 && !(t.c_lflag & (ICANON | ECHO)) && !(t.c_oflag & OPOST));
  return survived();
}
