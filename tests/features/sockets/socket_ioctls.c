// What is asked of a socket by ioctl: how much is unread and unsent (SIOCINQ, SIOCOUTQ) of UDP over both families, the owner that gets SIGIO
// and SIGURG (SIOCSPGRP, FIOASYNC), and when the last packet came (SIOCGSTAMP), which is a fresh one's. A datagram longer than asked for
// (MSG_TRUNC), a socket bound to the address of a multicast group, and one bound to an address with a scope.
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include "feature.h"
static int number(int fd, unsigned long what) {
  int value = -1;
  CHECK(ioctl(fd, what, &value) == 0);
  return value;
}
static int inbox(int family, struct sockaddr_storage* a, socklen_t* n) {
  memset(a, 0, sizeof(*a));
  a->ss_family = (sa_family_t)family;
  *n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
  if (family == AF_INET)
    ((struct sockaddr_in*)a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    ((struct sockaddr_in6*)a)->sin6_addr = in6addr_loopback;
  int fd = socket(family, SOCK_DGRAM, 0);
  CHECK(fd >= 0 && bind(fd, (void*)a, *n) == 0 && getsockname(fd, (void*)a, n) == 0);
  CHECK(sendto(fd, "twelve bytes", 12, 0, (void*)a, *n) == 12 && sendto(fd, "more", 4, 0, (void*)a, *n) == 4);
  CHECK(number(fd, SIOCINQ) == 12);
  return fd;
}
int main(void) {
  struct sockaddr_storage a, scoped = {0}, now;
  socklen_t n, m = sizeof(now);
  const int has6 = access("/proc/net/if_inet6", F_OK) == 0;
  int four = inbox(AF_INET, &a, &n), six = has6 ? inbox(AF_INET6, &a, &n) : -1;
  struct timeval stamp;
  int owner = -getpgrp(), on = 1;
  CHECK(ioctl(four, SIOCSPGRP, &owner) == 0 && ioctl(four, FIOASYNC, &on) == 0 && signal(SIGIO, SIG_IGN) != SIG_ERR);
  struct sockaddr_in group = {AF_INET, 0, {htonl(0xE0000109)}, ""}, is;
  int of_group = socket(AF_INET, SOCK_DGRAM, 0), of_scope = -1;
  CHECK(bind(of_group, (void*)&group, sizeof(group)) == 0 && getsockname(of_group, (void*)&group, &(socklen_t){sizeof(group)}) == 0);
  struct sockaddr_in6* s = (void*)&scoped;
  if (has6) {
    s->sin6_family = AF_INET6, s->sin6_scope_id = if_nametoindex("lo");
    CHECK(inet_pton(AF_INET6, "ff02::5", &s->sin6_addr) == 1 && (of_scope = socket(AF_INET6, SOCK_DGRAM, 0)) >= 0);
    CHECK(bind(of_scope, (void*)s, sizeof(*s)) == 0 && getsockname(of_scope, (void*)s, &(socklen_t){sizeof(*s)}) == 0);
  }
  ready_and_wait();
  char text[16];
  for (int i = 0; i < 2; ++i) {
    const int fd = i ? six : four;
    if (fd < 0) continue;
    CHECK(number(fd, SIOCINQ) == 12 && number(fd, SIOCOUTQ) == 0);
    CHECK(recv(fd, text, 4, MSG_TRUNC) == 12 && !memcmp(text, "twel", 4) && number(fd, SIOCINQ) == 4);
    CHECK(recv(fd, text, 16, 0) == 4 && number(fd, SIOCINQ) == 0);
  }
  CHECK(number(four, SIOCGPGRP) == -getpgrp() && fcntl(four, F_GETFL) & O_ASYNC);
  CHECK(ioctl(four, SIOCGSTAMP, &stamp) == 0 || errno == ENOENT);
  CHECK(getsockname(of_group, (void*)&is, &(socklen_t){sizeof(is)}) == 0 && !memcmp(&is, &group, 8));
  if (has6) CHECK(getsockname(of_scope, (void*)&now, &m) == 0 && m == sizeof(*s) && !memcmp(&now, s, m));
  return survived();
}
