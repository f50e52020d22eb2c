// A listening TCP socket: port, options, backlog; connections come in afterwards. UDP stays bound.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "feature.h"
static int one = 1;
static int served;
static void* server(void* a) {
  served = accept((int)(long)a, NULL, NULL);
  CHECK(served >= 0);
  return NULL;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""}, b;
  struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), u = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, 4) == 0 && setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, 4) == 0);
  CHECK(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, 4) == 0);
  char algorithm[16] = "reno", after[16] = "";
  CHECK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, algorithm, 4) == 0);
  CHECK(bind(s, (struct sockaddr*)&a, sizeof(a)) == 0 && listen(s, 13) == 0 && bind(u, (struct sockaddr*)&a, sizeof(a)) == 0);
  int six = socket(AF_INET6, SOCK_STREAM, 0), have6 = bind(six, (struct sockaddr*)&a6, sizeof(a6)) == 0;
  if (have6) CHECK(listen(six, 5) == 0);
  int bound = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(bound, (struct sockaddr*)&a, sizeof(a)) == 0);
  socklen_t n = sizeof(a);
  struct sockaddr_in au, ab;
  CHECK(getsockname(s, (struct sockaddr*)&a, &n) == 0 && getsockname(u, (struct sockaddr*)&au, &n) == 0);
  CHECK(getsockname(bound, (struct sockaddr*)&ab, &n) == 0);
  pthread_t t = start_thread(server, (void*)(long)s);
  sleep_ms(20);
  ready_and_wait();
  int v = 0;
  n = 4;
  CHECK(getsockopt(s, SOL_SOCKET, SO_REUSEADDR, &v, &n) == 0 && v);
  CHECK(getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &v, &n) == 0 && v);
  CHECK(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, &n) == 0 && v);
  n = sizeof(after);
  CHECK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, after, &n) == 0 && strcmp(after, algorithm) == 0);
  CHECK(fcntl(s, F_GETFD) & FD_CLOEXEC);
  n = sizeof(b);
  CHECK(getsockname(s, (struct sockaddr*)&b, &n) == 0 && b.sin_port == a.sin_port);
  CHECK(getsockname(bound, (struct sockaddr*)&b, &n) == 0 && b.sin_port == ab.sin_port);
  int c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(c, (struct sockaddr*)&a, sizeof(a)) == 0);
  pthread_join(t, NULL);
  char text[8];
  CHECK(write(c, "net", 3) == 3 && read(served, text, 8) == 3);
  int d = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(sendto(d, "udp", 3, 0, (struct sockaddr*)&au, sizeof(au)) == 3);
  sleep_ms(20);
  CHECK(read(u, text, 8) == 3 && read(u, text, 8) == -1 && errno == EAGAIN);
  return survived();
}
