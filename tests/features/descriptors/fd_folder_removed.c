// An open folder that was removed.
#include "feature.h"
int main(void) {
  CHECK(mkdir("d", 0700) == 0);
  int fd = open("d", O_RDONLY | O_DIRECTORY);
  CHECK(fd >= 0 && rmdir("d") == 0);
  ready_and_wait();
  struct stat s;
  CHECK(fstat(fd, &s) == 0 && S_ISDIR(s.st_mode) && s.st_nlink == 0 && access("d", F_OK) != 0);
  CHECK(openat(fd, "x", O_CREAT | O_WRONLY, 0600) < 0 && errno == ENOENT);
  return survived();
}
