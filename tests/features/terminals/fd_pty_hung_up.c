// Pseudo terminals with one end left: the master, with what the slave wrote before it was closed and
// without anything, and a slave whose master was closed.
#include <sys/ioctl.h>
#include "feature.h"
static int master_of(int* slave) {
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  *slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  CHECK(*slave >= 0);
  return master;
}
int main(void) {
  char text[16];
  int slave, left;
  const int unread = master_of(&slave);
  CHECK(write(slave, "unread", 6) == 6 && close(slave) == 0);
  const int empty = master_of(&slave);
  CHECK(close(slave) == 0);
  const int gone = master_of(&left);
  CHECK(close(gone) == 0);
  ready_and_wait();
  CHECK(read(unread, text, sizeof text) == 6 && memcmp(text, "unread", 6) == 0);
  CHECK(read(unread, text, sizeof text) == -1 && errno == EIO);
  CHECK(read(empty, text, sizeof text) == -1 && errno == EIO);
  CHECK(read(left, text, sizeof text) == 0);
  CHECK(write(left, "x", 1) == -1 && errno == EIO);
  // A slave can be opened again.
  slave = open(ptsname(empty), O_RDWR | O_NOCTTY);
  CHECK(slave >= 0 && write(empty, "line\n", 5) == 5 && read(slave, text, sizeof text) == 5);
  return survived();
}
