// flock, fcntl record locks and open-file-description locks are held again, also more of them than /proc tells in one read.
#include <sys/file.h>
#include "feature.h"
static int try_lock(int cmd, int fd, short type, off_t start, off_t len) {
  struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
  return fcntl(fd, cmd, &l);
}
enum { kMany = 500 };
int main(void) {
  int a = open("locked", O_RDWR | O_CREAT, 0600), b = open("locked2", O_RDWR | O_CREAT, 0600);
  int c = open("locked3", O_RDWR | O_CREAT, 0600), s = open("locked4", O_RDWR | O_CREAT, 0600);
  CHECK(flock(a, LOCK_EX) == 0 && flock(s, LOCK_SH) == 0);
  CHECK(try_lock(F_SETLK, b, F_WRLCK, 10, 20) == 0 && try_lock(F_SETLK, b, F_RDLCK, 100, 0) == 0);
  CHECK(try_lock(F_OFD_SETLK, c, F_WRLCK, 5, 5) == 0);
  int many = open("locked5", O_RDWR | O_CREAT, 0600);
  for (int i = 0; i < kMany; ++i) CHECK(try_lock(F_SETLK, many, F_WRLCK, 2 * i, 1) == 0);
  ready_and_wait();
  int a2 = open("locked", O_RDWR), s2 = open("locked4", O_RDWR), c2 = open("locked3", O_RDWR);
  CHECK(flock(a2, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
  CHECK(flock(s2, LOCK_SH | LOCK_NB) == 0);
  CHECK(flock(s2, LOCK_EX | LOCK_NB) == -1);
  CHECK(try_lock(F_OFD_SETLK, c2, F_WRLCK, 0, 6) == -1 && try_lock(F_OFD_SETLK, c2, F_WRLCK, 10, 6) == 0);
  pid_t child = fork();
  if (child == 0) {
    int b2 = open("locked2", O_RDWR);
    CHECK(try_lock(F_SETLK, b2, F_RDLCK, 29, 1) == -1);
    CHECK(try_lock(F_SETLK, b2, F_WRLCK, 30, 70) == 0);
    CHECK(try_lock(F_SETLK, b2, F_RDLCK, 1000, 1) == 0 && try_lock(F_SETLK, b2, F_WRLCK, 1000, 1) == -1);
    for (int i = 0; i < kMany; ++i) {
      CHECK(try_lock(F_SETLK, many, F_WRLCK, 2 * i, 1) == -1);
      CHECK(try_lock(F_SETLK, many, F_WRLCK, 2 * i + 1, 1) == 0);
    }
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(flock(a, LOCK_UN) == 0 && flock(a2, LOCK_EX | LOCK_NB) == 0);
  return survived();
}
