// A file that lost the name it was opened by and has another one in the same folder.
#include "feature.h"
int main(void) {
  int fd = open("a", O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
  CHECK(link("a", "b") == 0 && unlink("a") == 0);
  ready_and_wait();
  struct stat x, y;
  CHECK(fstat(fd, &x) == 0 && stat("b", &y) == 0 && x.st_ino == y.st_ino && x.st_nlink == 1);
  CHECK(lseek(fd, 0, SEEK_CUR) == 5 && write(fd, "!", 1) == 1);
  return survived();
}
