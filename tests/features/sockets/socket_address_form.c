// IPV6_ADDRFORM: IPv6 sockets, TCP and UDP, that are connected to an IPv4 peer and were turned into IPv4 ones.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
static int domain(int fd) {
  int value = -1;
  socklen_t n = sizeof(value);
  CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &n) == 0);
  return value;
}
static int turned(int type, int to) {
  struct sockaddr_in there;
  socklen_t n = sizeof(there);
  CHECK(getsockname(to, (void*)&there, &n) == 0);
  struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = there.sin_port};
  CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
  int fd = socket(AF_INET6, type, 0), four = AF_INET;
  if (fd < 0) absent("no IPv6");
  CHECK(connect(fd, (void*)&mapped, sizeof(mapped)) == 0);
  CHECK(setsockopt(fd, IPPROTO_IPV6, 1 /* IPV6_ADDRFORM */, &four, sizeof(four)) == 0);
  CHECK(domain(fd) == AF_INET);
  return fd;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""}, own, now;
  socklen_t n = sizeof(a);
  int inbox = socket(AF_INET, SOCK_DGRAM, 0), l = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(inbox, (void*)&a, n) == 0 && bind(l, (void*)&a, n) == 0 && listen(l, 3) == 0);
  int udp = turned(SOCK_DGRAM, inbox), tcp = turned(SOCK_STREAM, l), s = accept(l, NULL, NULL);
  CHECK(s >= 0 && send(udp, "before", 6, 0) == 6 && send(tcp, "unread", 6, 0) == 6 && send(s, "back", 4, 0) == 4);
  CHECK(getsockname(tcp, (void*)&own, &n) == 0 && own.sin_family == AF_INET);
  ready_and_wait();
  char text[16];
  CHECK(domain(udp) == AF_INET && domain(tcp) == AF_INET);
  CHECK(getsockname(tcp, (void*)&now, &n) == 0 && now.sin_family == AF_INET && now.sin_port == own.sin_port);
  CHECK(recv(inbox, text, 16, 0) == 6 && send(udp, "after", 5, 0) == 5 && recv(inbox, text, 16, 0) == 5);
  CHECK(recv(s, text, 16, 0) == 6 && recv(tcp, text, 16, 0) == 4 && send(tcp, "more", 4, 0) == 4 && recv(s, text, 16, 0) == 4);
  return survived();
}
