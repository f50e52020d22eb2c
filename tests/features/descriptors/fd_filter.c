// A packet filter of a Unix socket: what waits is not filtered again, what comes is.
#include <linux/filter.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int p[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0);
  struct sock_filter f[] = {
      {0x30, 0, 0, 0}, {0x15, 0, 1, 'x'}, {0x06, 0, 0, 0xffff}, {0x06, 0, 0, 0}};
  struct sock_fprog g = {4, f};
  CHECK(setsockopt(p[1], SOL_SOCKET, SO_ATTACH_FILTER, &g, sizeof g) == 0);
  ready_and_wait();
  send(p[0], "yy", 2, 0);
  CHECK(send(p[0], "xz", 2, 0) == 2);
  char b[8];
  CHECK(recv(p[1], b, 8, MSG_DONTWAIT) == 2 && b[0] == 'x');
  CHECK(recv(p[1], b, 8, MSG_DONTWAIT) < 0);
  struct sock_filter o[8];
  socklen_t n = 8;
  CHECK(getsockopt(p[1], SOL_SOCKET, SO_GET_FILTER, o, &n) == 0 && n == 4 &&
        !memcmp(o, f, sizeof f));
  return survived();
}
