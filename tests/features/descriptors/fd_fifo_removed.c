// A named pipe that was removed, with what is in it.
#include "feature.h"
int main(void) {
  CHECK(mkfifo("f", 0600) == 0);
  int rw = open("f", O_RDWR), r = open("f", O_RDONLY | O_NONBLOCK);
  CHECK(rw >= 0 && r >= 0 && write(rw, "abc", 3) == 3);
  CHECK(unlink("f") == 0);
  ready_and_wait();
  char b[8];
  CHECK(read(r, b, 8) == 3);
  CHECK(write(rw, "de", 2) == 2 && read(rw, b, 8) == 2);
  struct stat s;
  CHECK(fstat(rw, &s) == 0 && S_ISFIFO(s.st_mode) && s.st_nlink == 0 && access("f", F_OK) != 0);
  return survived();
}
