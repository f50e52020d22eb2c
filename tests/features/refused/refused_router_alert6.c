// IPV6_ROUTER_ALERT: like IP_ROUTER_ALERT (refused_router_alert.c).
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_INET6, SOCK_RAW, IPPROTO_RAW), value = 5, none = -1;
  if (fd < 0) absent("no raw sockets of IPv6");
  CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_ROUTER_ALERT, &value, sizeof(value)) == 0);
  ready_and_wait();
  CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_ROUTER_ALERT, &value, sizeof(value)) == -1 && errno == EADDRINUSE);
  CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_ROUTER_ALERT, &none, sizeof(none)) == 0);
  return survived();
}
