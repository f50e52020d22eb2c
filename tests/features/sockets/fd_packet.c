// Packet sockets, for root: bound to an interface, with options.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  if (getuid()) {
    ready_and_wait();
    return survived();
  }
  int p = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), q = socket(AF_PACKET, SOCK_DGRAM, 0);
  CHECK(p >= 0 && q >= 0);
  struct sockaddr_ll a = {.sll_family = AF_PACKET,
                          .sll_protocol = htons(ETH_P_IP),
                          .sll_ifindex = (int)if_nametoindex("lo")};
  CHECK(bind(p, (void*)&a, sizeof a) == 0);
  int v = TPACKET_V2;
  CHECK(setsockopt(p, SOL_PACKET, PACKET_VERSION, &v, 4) == 0);
  ready_and_wait();
  struct sockaddr_ll b;
  socklen_t l = sizeof b;
  CHECK(getsockname(p, (void*)&b, &l) == 0 && b.sll_ifindex == a.sll_ifindex &&
        b.sll_protocol == a.sll_protocol);
  l = 4;
  v = 9;
  CHECK(getsockopt(p, SOL_PACKET, PACKET_VERSION, &v, &l) == 0 && v == TPACKET_V2);
  int u = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in d = {
      .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  // Others' packets on the loopback can fill the queue: the marker is sent until one has found room.
  struct timeval wait = {0, 50000};
  CHECK(setsockopt(p, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0);
  char x[2000];
  const int64_t end = now_ms(CLOCK_MONOTONIC) + 20000;
  for (int found = 0; !found;) {
    CHECK(now_ms(CLOCK_MONOTONIC) < end);
    CHECK(sendto(u, "marker", 6, 0, (void*)&d, sizeof d) == 6);
    const ssize_t n = recv(p, x, sizeof(x), 0);
    CHECK(n > 0 || errno == EAGAIN);
    found = n > 0 && memmem(x, (size_t)n, "marker", 6) != NULL;
  }
  return survived();
}
