// A netlink socket that is bound: refused by number and kind.
#include <linux/netlink.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  struct sockaddr_nl a = {AF_NETLINK, 0, 0, 0};
  CHECK(fd >= 0 && bind(fd, (struct sockaddr*)&a, sizeof(a)) == 0);
  ready_and_wait();
  CHECK(fcntl(fd, F_GETFD) >= 0);
  return survived();
}
