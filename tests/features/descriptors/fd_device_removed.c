// Devices whose node was removed: the user's own (where that can be made), read and written as before.
#include <sys/sysmacros.h>
#include "feature.h"

static int make(const char* name, unsigned minor, int flags) {
  if (mknod(name, S_IFCHR | 0600, makedev(1, minor)) != 0) return -1;
  const int fd = open(name, flags);
  if (fd < 0) CHECK(errno == EACCES || errno == EPERM);  // (a file system without devices)
  CHECK(unlink(name) == 0);
  return fd;
}

int main(void) {
  const int zero = make("zero", 5, O_RDONLY), null = make("null", 3, O_RDWR | O_NONBLOCK), full = make("full", 7, O_WRONLY);
  ready_and_wait();
  struct stat st;
  char text[4] = "abc";
  if (zero >= 0) {
    CHECK(read(zero, text, 4) == 4 && !text[0] && fstat(zero, &st) == 0 && st.st_rdev == makedev(1, 5));
    CHECK(st.st_nlink == 0 && (st.st_mode & 07777) == 0600);
  }
  if (null >= 0) CHECK(read(null, text, 4) == 0 && write(null, text, 4) == 4 && fcntl(null, F_GETFL) & O_NONBLOCK);
  if (full >= 0) CHECK(write(full, text, 4) == -1 && errno == ENOSPC);
  return survived();
}
