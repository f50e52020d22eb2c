// File locks between processes: held by one, waited for by another, of each kind; and one that a
// parent's description shares with its child.
#include <sys/file.h>
#include "tree.h"
#define KINDS 3
static int lock(int kind, int fd, short type, int wait) {
  if (kind == 0) return flock(fd, (type == F_UNLCK ? LOCK_UN : LOCK_EX) | (wait ? 0 : LOCK_NB));
  struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = 10 * kind, .l_len = 5};
  if (kind == 1) return fcntl(fd, wait ? F_SETLKW : F_SETLK, &l);
  return fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
}
static int open_file(int kind) {
  char name[16];
  snprintf(name, sizeof name, "lock%d", kind);
  int fd = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  return fd;
}
int main(void) {
  int up[2], fds[KINDS];
  pid_t waiter[KINDS];
  CHECK(pipe(up) == 0);
  for (int k = 0; k < KINDS; ++k) {
    fds[k] = open_file(k);
    CHECK(lock(k, fds[k], F_WRLCK, 0) == 0);
  }
  for (int k = 0; k < KINDS; ++k)
    if ((waiter[k] = fork()) == 0) {
      int own = open_file(k);
      CHECK(lock(k, own, F_WRLCK, 0) == -1);
      CHECK(write(up[1], "w", 1) == 1);
      CHECK(lock(k, own, F_WRLCK, 1) == 0);  // until the parent lets go
      CHECK(access("let_go", F_OK) == 0);
      CHECK(write(up[1], "g", 1) == 1);
      // (An inherited description of flock and OFD locks holds what the parent held.)
      _exit(20 + k);
    }
  char c;
  for (int k = 0; k < KINDS; ++k) CHECK(read(up[0], &c, 1) == 1 && c == 'w');
  sleep_ms(50);
  ready_and_wait();
  CHECK(fcntl(up[0], F_SETFL, O_NONBLOCK) == 0);
  CHECK(read(up[0], &c, 1) == -1 && errno == EAGAIN);
  for (int k = 0; k < KINDS; ++k) {
    int other = open_file(k);
    if (k != 1) CHECK(lock(k, other, F_WRLCK, 0) == -1);
    if (k != 1) close(other);  // (closing any descriptor would drop the process's own lock)
  }
  CHECK(close(open("let_go", O_WRONLY | O_CREAT, 0600)) == 0);
  for (int k = 0; k < KINDS; ++k) CHECK(lock(k, fds[k], F_UNLCK, 0) == 0);
  for (int k = 0; k < KINDS; ++k) CHECK(wait_status(waiter[k]) == 20 + k);
  return survived();
}
