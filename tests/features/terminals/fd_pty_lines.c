// Unread input of a pseudo terminal in line mode: lines, an end of file between them, a line that ends with a character of the
// program's choice, and half a line, which stays one until the rest of it comes.
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
static int master, slave;
static void expect(const char* line) {
  char text[100] = "";
  const long n = (long)strlen(line);
  if (read(slave, text, sizeof(text) - 1) != n || strcmp(text, line) != 0) {
    dprintf(1, "read <%s>, wanted <%s>\n", text, line);
    _exit(1);
  }
}
int main(void) {
  master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK);
  struct termios t, now;
  CHECK(slave >= 0 && tcgetattr(slave, &t) == 0);
  t.c_cc[VEOL] = ';', t.c_cc[VEOF] = 5;
  CHECK(tcsetattr(slave, TCSANOW, &t) == 0);
  CHECK(write(master, "one\ntwo;end\5\5three\nha", 21) == 21);
  sleep_ms(50);
  char text[100];
  int before = 0, after = 0;
  const long echoed = read(master, text, sizeof(text));
  CHECK(echoed > 0 && ioctl(slave, FIONREAD, &before) == 0);
  CHECK(write(slave, "output", 6) == 6);
  ready_and_wait();
  CHECK(ioctl(slave, FIONREAD, &after) == 0 && before == after);
  CHECK(tcgetattr(slave, &now) == 0 && now.c_lflag == t.c_lflag && now.c_iflag == t.c_iflag);
  CHECK(memcmp(now.c_cc, t.c_cc, sizeof(t.c_cc)) == 0);
  CHECK(read(master, text, sizeof(text)) == 6 && memcmp(text, "output", 6) == 0);
  expect("one\n"), expect("two;"), expect("end"), expect(""), expect("three\n");
  CHECK(read(slave, text, sizeof(text)) == -1 && errno == EAGAIN);
  CHECK(write(master, "lf\n", 3) == 3);
  sleep_ms(50);
  expect("half\n");
  CHECK(read(master, text, sizeof(text)) == 4 && memcmp(text, "lf\r\n", 4) == 0);
  return survived();
}
