// Pseudo terminals whose output is stopped, by a call and by the stop character: a snapshot must not
// wait for them, and they are still stopped, and start again as they did before.
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
enum { kStop = 0x13, kStart = 0x11 };
static void open_terminal(int* master, int* slave) {
  int off = 0;
  *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK);
  CHECK(*master >= 0 && ioctl(*master, TIOCSPTLCK, &off) == 0);
  *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK);
  CHECK(*slave >= 0);
  CHECK(write(*slave, "before\n", 7) == 7);
}
static int is_stopped(int slave) { return write(slave, "x", 1) != 1; }
static void check_output(int master) {
  char text[64] = "";
  CHECK(read(master, text, sizeof(text)) > 0 && strncmp(text, "before\r\n", 8) == 0);
}
int main(void) {
  int call, call_slave, key, key_slave, runs, runs_slave;
  open_terminal(&call, &call_slave);
  open_terminal(&key, &key_slave);
  open_terminal(&runs, &runs_slave);
  CHECK(tcflow(call_slave, TCOOFF) == 0 && is_stopped(call_slave));
  const char stop = kStop, start = kStart;
  CHECK(write(key, &stop, 1) == 1);
  for (int i = 0; i < 2000 && !is_stopped(key_slave); ++i) sleep_ms(1);
  CHECK(is_stopped(key_slave));
  CHECK(write(key, "typed\n", 6) == 6);  // what is typed meanwhile is not lost
  sleep_ms(50);
  ready_and_wait();
  CHECK(is_stopped(call_slave) && is_stopped(key_slave) && !is_stopped(runs_slave));
  check_output(call), check_output(key), check_output(runs);
  CHECK(write(call, &start, 1) == 1);
  sleep_ms(50);
  CHECK(is_stopped(call_slave));  // a character does not start what a call has stopped
  CHECK(tcflow(call_slave, TCOON) == 0 && !is_stopped(call_slave));
  CHECK(write(key, &start, 1) == 1);
  for (int i = 0; i < 2000 && is_stopped(key_slave); ++i) sleep_ms(1);
  CHECK(!is_stopped(key_slave));
  char typed[16] = "";
  CHECK(read(key_slave, typed, sizeof(typed)) == 6 && strcmp(typed, "typed\n") == 0);
  return survived();
}
