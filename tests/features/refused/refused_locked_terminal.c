// A pseudo terminal whose settings are locked: refused by name.
#include <sys/ioctl.h>
#include <termios.h>
#include "feature.h"
int main(void) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(master >= 0 && unlockpt(master) == 0);
  struct termios locked = {0}, now = {0};
  locked.c_lflag = ECHO;
  if (ioctl(master, TIOCSLCKTRMIOS, &locked) != 0) absent("the right to lock settings");
  ready_and_wait();
  CHECK(ioctl(master, TIOCGLCKTRMIOS, &now) == 0 && now.c_lflag == ECHO);
  return survived();
}
