// The terminal that the program was started in, set to raw mode by it (launcher_terminal_test.py
// gives it one; without one there is nothing to see).
#include <termios.h>
#include "feature.h"
int main(void) {
  struct termios raw, now;
  const int terminal = isatty(0);
  if (terminal) {
    CHECK(tcgetattr(0, &raw) == 0);
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = 2, raw.c_cc[VTIME] = 1;
    CHECK(tcsetattr(0, TCSANOW, &raw) == 0 && tcgetattr(0, &raw) == 0);
  }
  ready_and_wait();
  if (terminal) {
    CHECK(tcgetattr(0, &now) == 0 && now.c_iflag == raw.c_iflag && now.c_oflag == raw.c_oflag);
    CHECK(now.c_cflag == raw.c_cflag && now.c_lflag == raw.c_lflag);
    CHECK(memcmp(now.c_cc, raw.c_cc, sizeof(now.c_cc)) == 0);
  }
  return survived();
}
