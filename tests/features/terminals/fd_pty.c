// A pseudo terminal with both ends inside: settings, window size, unread input and output;
// exclusive, so that only root may open it again.
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
int main(void) {
  int m = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0);
  int s = open(ptsname(m), O_RDWR | O_NOCTTY);
  CHECK(s >= 0);
  struct termios t;
  CHECK(tcgetattr(s, &t) == 0);
  cfmakeraw(&t);
  t.c_cc[VMIN] = 3, t.c_iflag |= IXANY;
  CHECK(tcsetattr(s, TCSANOW, &t) == 0);
  struct winsize w = {33, 111, 0, 0}, now;
  CHECK(ioctl(m, TIOCSWINSZ, &w) == 0);
  CHECK(write(m, "input", 5) == 5 && write(s, "output", 6) == 6);
  CHECK(ioctl(s, TIOCEXCL) == 0);
  sleep_ms(20);
  ready_and_wait();
  int exclusive = 0;
  CHECK(ioctl(s, TIOCGEXCL, &exclusive) == 0 && exclusive);
  char text[16];
  CHECK(read(s, text, 16) == 5 && memcmp(text, "input", 5) == 0);
  CHECK(read(m, text, 16) == 6 && memcmp(text, "output", 6) == 0);
  struct termios u;
  CHECK(tcgetattr(s, &u) == 0 && u.c_lflag == t.c_lflag && u.c_iflag == t.c_iflag && u.c_cc[VMIN] == 3);
  CHECK(ioctl(s, TIOCGWINSZ, &now) == 0 && now.ws_row == 33 && now.ws_col == 111);
  CHECK(isatty(s) && write(m, "abc", 3) == 3 && read(s, text, 16) == 3);
  return survived();
}
