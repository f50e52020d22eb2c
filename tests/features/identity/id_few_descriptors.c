// A program that has lowered its limit on descriptors, the hard one as well, below the number of one it has open.
#include "feature.h"
int main(void) {
  int fd = open("file", O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, "text", 4) == 4 && dup2(fd, 900) == 900);
  struct rlimit few = {100, 100}, now;
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  ready_and_wait();
  char text[8] = "";
  CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 100 && now.rlim_max == 100);
  CHECK(pread(900, text, 7, 0) == 4 && strcmp(text, "text") == 0 && lseek(fd, 0, SEEK_CUR) == 4);
  CHECK(dup2(fd, 901) == -1 && errno == EBADF);
  return survived();
}
