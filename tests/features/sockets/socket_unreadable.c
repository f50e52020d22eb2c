// Options that the kernel takes and does not tell, and without which a socket still works: the snapshot names each that is set, and none
// that was taken back; the socket comes back without.
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int fd = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0), mtu = 1400, undone = socket(AF_INET, SOCK_DGRAM, 0);
  struct ip_mreqn lo = {.imr_ifindex = 1}, none = {.imr_ifindex = 0};
  CHECK(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof(lo)) == 0);
  CHECK(setsockopt(undone, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof(lo)) == 0);
  CHECK(setsockopt(undone, IPPROTO_IP, IP_MULTICAST_IF, &none, sizeof(none)) == 0);
  if (six >= 0) {
    struct in6_pktinfo from = {IN6ADDR_LOOPBACK_INIT, 1};
    CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_PKTINFO, &from, sizeof(from)) == 0);
    CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_MTU, &mtu, sizeof(mtu)) == 0);
  }
  ready_and_wait();
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  char byte;
  CHECK(bind(undone, (void*)&a, n) == 0 && getsockname(undone, (void*)&a, &n) == 0);
  CHECK(sendto(fd, "x", 1, 0, (void*)&a, n) == 1 && recv(undone, &byte, 1, 0) == 1);
  return survived();
}
