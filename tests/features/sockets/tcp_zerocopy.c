// Bytes that a TCP connection was given with MSG_ZEROCOPY, and the notification that they may be used again, which is not read yet
// (MSG_ERRQUEUE): the snapshot says that a restore has none of it; the bytes arrive.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include "feature.h"
static int notifications(int fd) {
  char control[256], byte;
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  int count = 0;
  while (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) ++count;
  return count;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  int on = 1, l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(l, (void*)&a, n) == 0 && listen(l, 3) == 0 && getsockname(l, (void*)&a, &n) == 0 && connect(c, (void*)&a, n) == 0);
  int s = accept(l, NULL, NULL);
  static char bytes[1 << 15], there[1 << 15];
  if (setsockopt(c, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) absent("no SO_ZEROCOPY");
  CHECK(s >= 0 && send(c, bytes, sizeof(bytes), MSG_ZEROCOPY) == sizeof(bytes));
  CHECK(recv(s, there, sizeof(there), MSG_WAITALL) == sizeof(there));
  struct pollfd p = {c, 0, 0};
  CHECK((poll(&p, 1, 2000) == 1 && p.revents & POLLERR) || was_restored());
  CHECK(send(c, "unread", 6, 0) == 6);
  const int before = was_restored();
  ready_and_wait();
  const int killed = was_restored(), there_are = notifications(c);
  CHECK(there_are == 1 ? killed == before : there_are == 0 && was_restored());
  CHECK(recv(s, there, 16, 0) == 6 && send(c, "more", 4, 0) == 4 && recv(s, there, 16, 0) == 4);
  return survived();
}
