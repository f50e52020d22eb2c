// What waits in an error queue (MSG_ERRQUEUE): the ICMP error of a datagram that nobody took, with IP_RECVERR and without. The
// snapshot says that a restore has none of it.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include "feature.h"
static int errors(int fd) {
  char control[256], byte;
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  int count = 0;
  while (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) ++count;
  return count;
}
static int awaits_error(int fd) {
  struct pollfd p = {fd, 0, 0};
  return poll(&p, 1, 2000) == 1 && p.revents & POLLERR;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""}, nobody = a;
  socklen_t n = sizeof(a);
  int on = 1, told = socket(AF_INET, SOCK_DGRAM, 0), plain = socket(AF_INET, SOCK_DGRAM, 0), gone = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(bind(gone, (void*)&nobody, n) == 0 && getsockname(gone, (void*)&nobody, &n) == 0 && close(gone) == 0);
  CHECK(setsockopt(told, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)) == 0);
  for (int i = 0; i < 2; ++i) CHECK(connect(i ? told : plain, (void*)&nobody, n) == 0 && send(i ? told : plain, "x", 1, 0) == 1);
  CHECK((awaits_error(told) && awaits_error(plain)) || was_restored());
  const int before = was_restored();
  ready_and_wait();
  int error = -1, killed = was_restored();
  CHECK(getsockopt(plain, SOL_SOCKET, SO_ERROR, &error, &n) == 0);
  CHECK(error == ECONNREFUSED ? killed == before : error == 0 && was_restored());
  killed = was_restored();
  CHECK(errors(told) == 1 ? killed == before : was_restored());
  return survived();
}
