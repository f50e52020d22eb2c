// Netlink sockets: bound, connected to the kernel, members of groups.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include "feature.h"
// Other programs of the machine make and remove links: a program reads what it asked to be told of.
static void* read_events(void* sockets) {
  char event[8192];
  for (;;) {
    for (int i = 0; i < 2; ++i)
      while (recv(((int*)sockets)[i], event, sizeof(event), MSG_DONTWAIT) > 0) {
      }
    sleep_ms(5);
  }
  return NULL;
}

int main(void) {
  int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE),
      t = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE),
      u = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT),
      v = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  struct sockaddr_nl a = {AF_NETLINK, 0, 0, 0}, c = {AF_NETLINK, 0, 0, RTMGRP_LINK};
  CHECK(bind(s, (void*)&a, sizeof a) == 0);
  CHECK(connect(t, (void*)&(struct sockaddr_nl){AF_NETLINK, 0, 0, 0}, sizeof a) == 0);
  c.nl_groups = 1;
  CHECK(bind(u, (void*)&c, sizeof c) == 0);
  CHECK(bind(v, (void*)&c, sizeof c) == 0);
  struct sockaddr_nl n1, n2;
  socklen_t l = sizeof n1;
  CHECK(getsockname(s, (void*)&n1, &l) == 0);
  int events[2] = {u, v};
  start_thread(read_events, events);
  ready_and_wait();
  l = sizeof n2;
  CHECK(getsockname(s, (void*)&n2, &l) == 0 && !memcmp(&n1, &n2, sizeof n1));
  l = sizeof n2;
  CHECK(getsockname(v, (void*)&n2, &l) == 0 && n2.nl_groups == 1);
  struct {
    struct nlmsghdr h;
    struct rtgenmsg g;
  } q = {{NLMSG_LENGTH(sizeof q.g), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {AF_UNSPEC}};
  CHECK(send(s, &q, q.h.nlmsg_len, 0) > 0);
  char x[8192];
  CHECK(recv(s, x, 8192, 0) > 16 && ((struct nlmsghdr*)x)->nlmsg_type == RTM_NEWLINK);
  CHECK(send(t, &q, q.h.nlmsg_len, 0) > 0 && recv(t, x, 8192, 0) > 16);
  CHECK(fcntl(s, F_GETFD) == FD_CLOEXEC);
  return survived();
}
