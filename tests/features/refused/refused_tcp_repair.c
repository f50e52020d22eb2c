// A TCP socket in repair mode, which has parts of a connection that only its program knows: refused by name.
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, is = 0;
  socklen_t n = sizeof(is);
  CHECK(fd >= 0);
  if (setsockopt(fd, IPPROTO_TCP, 19 /* TCP_REPAIR */, &on, sizeof(on)) != 0) absent("not allowed");
  ready_and_wait();
  CHECK(getsockopt(fd, IPPROTO_TCP, 19, &is, &n) == 0 && is == 1);
  return survived();
}
