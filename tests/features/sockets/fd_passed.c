// Descriptors on their way through a Unix socket (SCM_RIGHTS).
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int s[2], p[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0);
  union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr h; } control;
  struct iovec io = {"m", 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  control.h = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.h), &p[0], sizeof(int));
  CHECK(write(p[1], "inside", 6) == 6);
  CHECK(sendmsg(s[0], &m, 0) == 1);
  close(p[0]);
  ready_and_wait();
  char c;
  io.iov_base = &c;
  m.msg_controllen = sizeof(control);
  CHECK(recvmsg(s[1], &m, 0) == 1 && c == 'm' && m.msg_controllen >= CMSG_LEN(sizeof(int)));
  int fd;
  memcpy(&fd, CMSG_DATA(&control.h), sizeof(int));
  char text[16];
  CHECK(read(fd, text, 16) == 6 && memcmp(text, "inside", 6) == 0);
  CHECK(write(p[1], "more", 4) == 4 && read(fd, text, 16) == 4);
  return survived();
}
