// A policy of IPsec for one socket (IP_XFRM_POLICY), which the kernel does not tell: refused by name.
#include <linux/xfrm.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  struct xfrm_userpolicy_info policy = {.dir = XFRM_POLICY_OUT, .action = XFRM_POLICY_ALLOW, .sel = {.family = AF_INET}};
  policy.lft.soft_byte_limit = policy.lft.hard_byte_limit = policy.lft.soft_packet_limit = policy.lft.hard_packet_limit = XFRM_INF;
  CHECK(fd >= 0);
  if (setsockopt(fd, IPPROTO_IP, 17 /* IP_XFRM_POLICY */, &policy, sizeof(policy)) != 0) absent("no IPsec policies");
  ready_and_wait();
  CHECK(fcntl(fd, F_GETFD) >= 0);
  return survived();
}
