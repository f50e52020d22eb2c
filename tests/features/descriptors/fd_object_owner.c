// Pipes and sockets have owners: they decide which users may open a pipe by its name in /proc/PID/fd. A program that has dropped
// root's rights has made them as the user that it became.
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  if (getuid() != 0) absent("root");
  int fd[5];
  struct stat st;
  CHECK(pipe(fd) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, fd + 2) == 0 && (fd[4] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
  CHECK(fchown(fd[0], 1234, 4321) == 0 && fchown(fd[2], 1234, 4321) == 0 && fchown(fd[3], 77, 0) == 0);
  CHECK(fchown(fd[4], 0, 88) == 0);
  ready_and_wait();
  const unsigned owner[5][2] = {{1234, 4321}, {1234, 4321}, {1234, 4321}, {77, 0}, {0, 88}};
  for (int i = 0; i < 5; ++i) CHECK(fstat(fd[i], &st) == 0 && st.st_uid == owner[i][0] && st.st_gid == owner[i][1]);
  return survived();
}
