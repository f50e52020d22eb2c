// A file that only grows (chattr +a), open for appending.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include "feature.h"
int main(void) {
  const int file = open("log", O_WRONLY | O_APPEND | O_CREAT, 0600);
  int flags = FS_APPEND_FL, now = 0;
  CHECK(file >= 0 && write(file, "before\n", 7) == 7);
  if (ioctl(file, FS_IOC_SETFLAGS, &flags) != 0) absent("chattr +a");
  ready_and_wait();
  CHECK(ioctl(file, FS_IOC_GETFLAGS, &now) == 0 && now & FS_APPEND_FL);
  const int wrote = write(file, "after\n", 6) == 6;
  now &= ~FS_APPEND_FL;
  CHECK(ioctl(file, FS_IOC_SETFLAGS, &now) == 0);  // so that it can be removed
  CHECK(wrote);
  const int reader = open("log", O_RDONLY);
  char text[32];
  CHECK(read(reader, text, sizeof text) == 13 && memcmp(text, "before\nafter\n", 13) == 0);
  return survived();
}
