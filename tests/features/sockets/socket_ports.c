// Ports that several sockets have (SO_REUSEPORT, SO_REUSEADDR, also when it was taken back), and
// addresses that are not this machine's (IP_FREEBIND, IPV6_FREEBIND, also when they were taken back).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
enum { kMost = 32 };
static int fds[kMost], count;
static struct sockaddr_in6 names[kMost];
static void look(int fd, struct sockaddr_in6* a) {
  socklen_t n = sizeof(*a);
  memset(a, 0, n);
  CHECK(getsockname(fd, (void*)a, &n) == 0);
}
static int bound(int type, int option, int value, struct sockaddr_in* a) {
  int fd = socket(AF_INET, type, 0);
  socklen_t n = sizeof(*a);
  CHECK(fd >= 0 && (!option || setsockopt(fd, SOL_SOCKET, option, &value, 4) == 0));
  CHECK(bind(fd, (void*)a, n) == 0 && getsockname(fd, (void*)a, &n) == 0);
  return fds[count++] = fd;
}
static int get_at(int fd, int level, int option) {
  int v = -1;
  socklen_t n = 4;
  CHECK(getsockopt(fd, level, option, &v, &n) == 0);
  return v;
}
static int get(int fd, int option) { return get_at(fd, SOL_SOCKET, option); }
int main(void) {
  int on = 1, off = 0;
  struct sockaddr_in base = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""}, a, tcp, udp;
  a = base;
  int t1 = bound(SOCK_STREAM, SO_REUSEPORT, 1, &a), t2 = bound(SOCK_STREAM, SO_REUSEPORT, 1, &a);
  tcp = a;
  CHECK(listen(t1, 3) == 0 && listen(t2, 3) == 0);
  a = base;
  bound(SOCK_DGRAM, SO_REUSEPORT, 1, &a), bound(SOCK_DGRAM, SO_REUSEPORT, 1, &a);
  a = base;
  int back = bound(SOCK_STREAM, SO_REUSEPORT, 1, &a), back2 = bound(SOCK_STREAM, SO_REUSEPORT, 1, &a);
  CHECK(setsockopt(back, SOL_SOCKET, SO_REUSEPORT, &off, 4) == 0);
  a = base;
  int u1 = bound(SOCK_DGRAM, SO_REUSEADDR, 1, &a), u2 = bound(SOCK_DGRAM, SO_REUSEADDR, 1, &a);
  udp = a;
  CHECK(setsockopt(u1, SOL_SOCKET, SO_REUSEADDR, &off, 4) == 0);
  CHECK(setsockopt(u2, SOL_SOCKET, SO_REUSEADDR, &off, 4) == 0);
  // One port on two addresses, and a bound one beside a listening one.
  a = base;
  bound(SOCK_STREAM, 0, 0, &a);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  CHECK(listen(bound(SOCK_STREAM, 0, 0, &a), 3) == 0);
  const int far_first = count;
  for (int i = 0; i < 4; ++i) {
    const int datagrams = i % 2, taken_back = i / 2;
    struct sockaddr_in far = {AF_INET, 0, {htonl(0xc6336401)}, ""};  // 198.51.100.1
    int f = socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
    CHECK(setsockopt(f, IPPROTO_IP, IP_FREEBIND, &on, 4) == 0);
    CHECK(bind(f, (void*)&far, sizeof(far)) == 0 && (datagrams || listen(f, 3) == 0));
    CHECK(!taken_back || setsockopt(f, IPPROTO_IP, IP_FREEBIND, &off, 4) == 0);
    fds[count++] = f;
    struct sockaddr_in6 far6 = {.sin6_family = AF_INET6};
    CHECK(inet_pton(AF_INET6, "2001:db8::1", &far6.sin6_addr) == 1);
    if ((f = socket(AF_INET6, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0)) < 0) continue;
    CHECK(setsockopt(f, IPPROTO_IPV6, 78 /* IPV6_FREEBIND */, &on, 4) == 0);
    CHECK(bind(f, (void*)&far6, sizeof(far6)) == 0 && (datagrams || listen(f, 3) == 0));
    CHECK(!taken_back || setsockopt(f, IPPROTO_IPV6, 78 /* IPV6_FREEBIND */, &off, 4) == 0);
    fds[count++] = f;
  }
  int free_before[kMost];
  for (int i = far_first; i < count; ++i) free_before[i] = get_at(fds[i], IPPROTO_IP, IP_FREEBIND);
  const int far_end = count;
  int device = socket(AF_INET, SOCK_DGRAM, 0);
  a = base;
  CHECK(setsockopt(device, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
  CHECK(bind(device, (void*)&a, sizeof(a)) == 0);
  fds[count++] = device;
  for (int i = 0; i < count; ++i) look(fds[i], &names[i]);
  ready_and_wait();
  for (int i = 0; i < count; ++i) {
    struct sockaddr_in6 now;
    look(fds[i], &now);
    CHECK(!memcmp(&now, &names[i], sizeof(now)));
  }
  for (int i = far_first; i < far_end; ++i)
    CHECK(get_at(fds[i], IPPROTO_IP, IP_FREEBIND) == free_before[i]);
  CHECK(get(t1, SO_REUSEPORT) && get(t2, SO_REUSEPORT) && !get(t1, SO_REUSEADDR));
  CHECK(!get(back, SO_REUSEPORT) && get(back2, SO_REUSEPORT));
  CHECK(!get(u1, SO_REUSEADDR) && !get(u2, SO_REUSEADDR));
  char name[16];
  socklen_t n = sizeof(name);
  CHECK(getsockopt(device, SOL_SOCKET, SO_BINDTODEVICE, name, &n) == 0 && !strcmp(name, "lo"));
  // No other socket may be bound to a port whose owners do not share it any more.
  int other = socket(AF_INET, SOCK_DGRAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &on, 4) == 0);
  CHECK(bind(other, (void*)&udp, sizeof(udp)) == -1 && errno == EADDRINUSE);
  CHECK(connect(c, (void*)&tcp, sizeof(tcp)) == 0);
  return survived();
}
