// A netlink socket of a kind for which the kernel keeps state that cannot be queried: refused by number.
#include <linux/netlink.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_FIB_LOOKUP);
  CHECK(fd >= 0);
  ready_and_wait();
  CHECK(fcntl(fd, F_GETFD) >= 0);
  return survived();
}
