// Raw sockets, for root: bound, and one that writes its headers itself.
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  if (getuid()) {
    ready_and_wait();
    return survived();
  }
  int r = socket(AF_INET, SOCK_RAW, 200), i = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP),
      w = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
  CHECK(r >= 0 && i >= 0 && w >= 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  CHECK(bind(r, (void*)&a, sizeof a) == 0);
  ready_and_wait();
  struct sockaddr_in b;
  socklen_t l = sizeof b;
  CHECK(getsockname(r, (void*)&b, &l) == 0 && b.sin_addr.s_addr == a.sin_addr.s_addr);
  CHECK(sendto(r, "hi", 2, 0, (void*)&a, sizeof a) == 2);
  char x[100];
  CHECK(recv(r, x, 100, 0) == 22);
  int hdr;
  l = 4;
  CHECK(getsockopt(w, IPPROTO_IP, IP_HDRINCL, &hdr, &l) == 0 && hdr == 1);
  return survived();
}
