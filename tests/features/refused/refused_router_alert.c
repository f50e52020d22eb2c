// A raw socket to which packets with a router alert go (IP_ROUTER_ALERT), which the kernel does not tell: refused by name.
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RSVP), on = 1;
  if (fd < 0) absent("no raw sockets");
  CHECK(setsockopt(fd, IPPROTO_IP, IP_ROUTER_ALERT, &on, sizeof(on)) == 0);
  ready_and_wait();
  CHECK(setsockopt(fd, IPPROTO_IP, IP_ROUTER_ALERT, &on, sizeof(on)) == -1 && errno == EADDRINUSE);
  return survived();
}
