// What the kernel tells of a TCP connection and no call sets: tcp(7) TCP_INFO, TCP_TIMESTAMP, TCP_SAVED_SYN, SIOCINQ, SIOCOUTQ
// and SIOCATMARK, ip(7) IP_MTU, ipv6(7) IPV6_PATHMTU. The connection is as it was; its counters and the
// packet that began it are those of the connection that the restore made.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include "feature.h"
static struct tcp_info info_of(int fd) {
  struct tcp_info i = {0};
  socklen_t n = sizeof(i);
  CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) == 0);
  return i;
}
static int number(int fd, int level, int name) {
  int value = -1;
  socklen_t n = sizeof(value);
  CHECK(getsockopt(fd, level, name, &value, &n) == 0);
  return value;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {0}, ""};
  socklen_t n = sizeof(a);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  CHECK(bind(l, (void*)&a, n) == 0 && setsockopt(l, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof(on)) == 0);
  CHECK(listen(l, 3) == 0 && getsockname(l, (void*)&a, &n) == 0 && connect(c, (void*)&a, n) == 0);
  int s = accept(l, NULL, NULL);
  CHECK(s >= 0);
  static char bytes[50000];
  CHECK(write(c, bytes, sizeof(bytes)) == sizeof(bytes));
  CHECK(recv(s, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes));
  CHECK(send(c, "ab", 2, MSG_OOB) == 2);
  CHECK(send(s, "unread", 6, 0) == 6);
  const int mtu = number(c, IPPROTO_IP, 14 /* IP_MTU */);
  CHECK(info_of(c).tcpi_bytes_sent >= 50002);
  ready_and_wait();
  char syn[512];
  socklen_t m = sizeof(syn);
  CHECK(getsockopt(s, IPPROTO_TCP, TCP_SAVED_SYN, syn, &m) == 0);
  CHECK((m > 0) == (info_of(c).tcpi_bytes_sent >= 50002));  // both as they were, or both fresh
  CHECK(info_of(c).tcpi_state == 1 && info_of(s).tcpi_state == 1);
  CHECK(number(c, IPPROTO_IP, 14) == mtu);
  int mark = -1, waiting = -1;
  m = sizeof(bytes);
  CHECK(getsockopt(c, IPPROTO_TCP, 26 /* TCP_CC_INFO */, bytes, &m) == 0);
  CHECK(number(c, IPPROTO_TCP, 24 /* TCP_TIMESTAMP */) != 0);  // a clock, of no meaning by itself
  CHECK(ioctl(c, 0x541B /* SIOCINQ */, &waiting) == 0 && waiting == 6);
  CHECK(ioctl(s, 0x5411 /* SIOCOUTQ */, &waiting) == 0 && waiting == 0);  // all was delivered
  CHECK(recv(s, bytes, 10, 0) == 1 && bytes[0] == 'a' && ioctl(s, 0x8905 /* SIOCATMARK */, &mark) == 0 && mark == 1);
  return survived();
}
