// A flow label that a socket has leased (IPV6_FLOWLABEL_MGR): no process may ask for the leases of a socket, so it is refused by name,
// also when it was leased by syscall(3).
#include <linux/in6.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "feature.h"
enum { kManager = 32 /* IPV6_FLOWLABEL_MGR */ };
int main(void) {
  int fd = socket(AF_INET6, SOCK_DGRAM, 0);
  if (fd < 0) absent("no IPv6");
  struct in6_flowlabel_req r = {.flr_action = IPV6_FL_A_GET, .flr_share = IPV6_FL_S_EXCL, .flr_flags = IPV6_FL_F_CREATE};
  r.flr_dst.s6_addr[15] = 1;
  if (syscall(SYS_setsockopt, fd, 41, kManager, &r, sizeof(r)) != 0) absent("no flow labels");
  CHECK(r.flr_label != 0);
  ready_and_wait();
  r.flr_action = IPV6_FL_A_RENEW;
  CHECK(setsockopt(fd, 41, kManager, &r, sizeof(r)) == 0);
  return survived();
}
