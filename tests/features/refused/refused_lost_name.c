// A file that lost its name and has another one so far away that it is not found. A copy would no longer be the file that
// the other name leads to.
#include "feature.h"
int main(void) {
  const int fd = open("first", O_RDWR | O_CREAT | O_EXCL, 0600);
  int at = open(".", O_RDONLY | O_DIRECTORY);
  CHECK(fd >= 0 && at >= 0);
  for (int depth = 0; depth < 20; ++depth) {
    const int outer = at;
    CHECK(mkdirat(outer, "folder", 0700) == 0 && (at = openat(outer, "folder", O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK(close(outer) == 0);
  }
  CHECK(linkat(AT_FDCWD, "first", at, "second", 0) == 0 && unlink("first") == 0 && close(at) == 0);
  ready_and_wait();
  CHECK(write(fd, "x", 1) == 1);
  return survived();
}
