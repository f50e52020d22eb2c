// A thousand descriptors of several kinds, with gaps and numbers up to 2000.
#include <sys/resource.h>
#include "feature.h"
int main(void) {
  struct rlimit l;
  getrlimit(RLIMIT_NOFILE, &l);
  l.rlim_cur = l.rlim_max < 4096 ? l.rlim_max : 4096;
  CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
  int p[2], f = open("many", O_RDWR | O_CREAT, 0600), n = open("/dev/null", O_WRONLY);
  CHECK(pipe(p) == 0 && f >= 0);
  CHECK(write(f, "abcdef", 6) == 6);
  for (int fd = 20; fd < 1000; ++fd) CHECK(dup2(fd % 3 == 0 ? f : fd % 3 == 1 ? n : p[fd & 1], fd) == fd);
  CHECK(dup2(f, 900) == 900);
  int top = l.rlim_cur > 2000 ? 2000 : 1010;
  CHECK(dup2(p[1], top) == top);
  ready_and_wait();
  CHECK(lseek(f, 2, SEEK_SET) == 2 && lseek(900, 0, SEEK_CUR) == 2 && lseek(21, 0, SEEK_CUR) == 2);
  CHECK(write(top, "q", 1) == 1);
  char c;
  CHECK(read(p[0], &c, 1) == 1 && c == 'q');
  CHECK(fcntl(1005, F_GETFD) == -1 && fcntl(15, F_GETFD) == -1);
  return survived();
}
