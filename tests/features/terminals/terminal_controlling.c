// A controlling terminal of the program's own making: its slave is closed, /dev/tty is open, watched by an epoll set, and tells of
// input by a signal.
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
static volatile sig_atomic_t told;
static void tell(int sig) { told = sig; }
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
  struct epoll_event e = {EPOLLIN, {.u32 = 77}};
  int set = epoll_create1(0), kept = dup(tty);
  CHECK(set >= 0 && kept >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, kept, &e) == 0);
  signal(SIGIO, tell);
  CHECK(fcntl(tty, F_SETOWN, getpid()) == 0 && fcntl(tty, F_SETFL, O_ASYNC | O_APPEND) == 0);
  const int flags = fcntl(tty, F_GETFL);
  CHECK(flags & O_ASYNC && flags & O_APPEND);
  ready_and_wait();
  CHECK(fcntl(tty, F_GETFL) == flags && fcntl(kept, F_GETFL) == flags && fcntl(tty, F_GETOWN) == getpid());
  memset(&e, 0, sizeof(e));
  CHECK(epoll_wait(set, &e, 1, 0) == 1 && e.data.u32 == 77);
  char text[16];
  struct stat a, b;
  CHECK(tcgetpgrp(tty) == getpgrp() && tcgetsid(m) == getpid());
  CHECK(read(tty, text, 16) == 5 && memcmp(text, "typed", 5) == 0);
  CHECK(write(tty, "x\n", 2) == 2 && read(m, text, 16) == 2);
  told = 0;
  CHECK(epoll_wait(set, &e, 1, 0) == 0 && write(m, "!", 1) == 1 && epoll_wait(set, &e, 1, 5000) != 0);
  for (int i = 0; i < 500 && !told; ++i) sleep_ms(2);
  CHECK(told == SIGIO && read(kept, text, 16) == 1);
  int again = open("/dev/tty", O_RDWR);
  CHECK(again >= 0 && fstat(again, &a) == 0 && fstat(tty, &b) == 0 && a.st_rdev == b.st_rdev);
  CHECK(tcgetattr(tty, &t) == 0 && !(t.c_lflag & (ICANON | ECHO)) && !(t.c_oflag & OPOST));
  return survived();
}
