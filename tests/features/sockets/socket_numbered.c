// A socket that numbers the time stamps of what it sends: the snapshot says that the numbers begin at 0 again. That what it has sent is
// put back into the receiver's socket makes no new ones.
#include <time.h>  // what follows needs it

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include "feature.h"
static uint32_t number_of_next(int fd) {
  char control[512], byte;
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct pollfd p = {fd, 0, 0};
  CHECK(send(fd, "x", 1, 0) == 1 && poll(&p, 1, 5000) == 1);
  CHECK(recvmsg(fd, &m, MSG_ERRQUEUE) >= 0);
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) return ((struct sock_extended_err*)CMSG_DATA(c))->ee_data;
  return ~0u;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  const int to = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
  const int plain = socket(AF_INET, SOCK_DGRAM, 0), stamps = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  const int numbered = stamps | SOF_TIMESTAMPING_OPT_ID;
  CHECK(bind(to, (void*)&a, n) == 0 && getsockname(to, (void*)&a, &n) == 0 && connect(fd, (void*)&a, n) == 0);
  CHECK(setsockopt(plain, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof(stamps)) == 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &numbered, sizeof(numbered)) == 0);
  CHECK(number_of_next(fd) == 0 && number_of_next(fd) == 1);
  ready_and_wait();
  struct pollfd p = {fd, 0, 0};
  CHECK(poll(&p, 1, 0) == 0 && number_of_next(fd) == (was_restored() ? 0 : 2));
  char byte;
  for (int i = 0; i < 3; ++i) CHECK(recv(to, &byte, 1, 0) == 1 && byte == 'x');
  return survived();
}
