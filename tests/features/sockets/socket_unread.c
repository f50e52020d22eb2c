// Unread messages and their senders: datagrams of UDP (IPv4 and IPv6) and of Unix sockets whose
// senders are there (bound to one address or to all), are closed, or have lost their names; credentials; a byte sent with MSG_OOB; a
// connection whose other end was closed with something unread.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
static int udp(int family, struct sockaddr_storage* a, socklen_t* n) {
  struct sockaddr_in v4 = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int fd = socket(family, SOCK_DGRAM, 0);
  *n = family == AF_INET ? sizeof(v4) : sizeof(v6);
  memset(a, 0, sizeof(*a));
  memcpy(a, family == AF_INET ? (void*)&v4 : (void*)&v6, *n);
  CHECK(fd >= 0 && bind(fd, (void*)a, *n) == 0 && getsockname(fd, (void*)a, n) == 0);
  return fd;
}
struct Inbox {
  int family, fd, there, shut, everywhere, of_both;
  struct sockaddr_storage own, from[5];
  socklen_t bytes;
};
static char large[20000];
// (At the same place in both families.)
static in_port_t port(const struct sockaddr_storage* a) { return ((const struct sockaddr_in*)a)->sin_port; }
static struct sockaddr_storage with_port_of(const struct sockaddr_storage* address, int fd) {
  struct sockaddr_storage out = *address, own;
  socklen_t n = sizeof(own);
  CHECK(getsockname(fd, (void*)&own, &n) == 0);
  ((struct sockaddr_in*)&out)->sin_port = port(&own);
  return out;
}
static void fill(struct Inbox* in, int family) {
  in->family = family, in->of_both = -1;
  in->fd = udp(family, &in->own, &in->bytes);
  in->there = udp(family, &in->from[0], &in->bytes);
  int closed = udp(family, &in->from[1], &in->bytes);
  CHECK(sendto(in->there, "one", 3, 0, (void*)&in->own, in->bytes) == 3);
  CHECK(sendto(closed, large, sizeof(large), 0, (void*)&in->own, in->bytes) == sizeof(large));
  CHECK(sendto(in->there, "", 0, 0, (void*)&in->own, in->bytes) == 0);
  CHECK(sendto(closed, "four", 4, 0, (void*)&in->own, in->bytes) == 4);
  close(closed);
  // Bound by their first datagram, to all addresses of a port.
  in->everywhere = socket(family, SOCK_DGRAM, 0);
  CHECK(sendto(in->everywhere, "five", 4, 0, (void*)&in->own, in->bytes) == 4);
  in->from[3] = with_port_of(&in->own, in->everywhere);
  if (family == AF_INET && (in->of_both = socket(AF_INET6, SOCK_DGRAM, 0)) >= 0) {
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = port(&in->own)};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    CHECK(sendto(in->of_both, "six", 3, 0, (void*)&mapped, sizeof(mapped)) == 3);
    in->from[4] = with_port_of(&in->own, in->of_both);
  }
  in->shut = udp(family, &in->from[2], &in->bytes);
  CHECK(connect(in->shut, (void*)&in->own, in->bytes) == 0 && shutdown(in->shut, SHUT_WR) == 0);
}
static void get(struct Inbox* in, const void* text, long bytes, int from) {
  static char room[30000];
  struct sockaddr_storage a;
  socklen_t n = sizeof(a);
  memset(&a, 0, n);
  CHECK(recvfrom(in->fd, room, sizeof(room), MSG_DONTWAIT, (void*)&a, &n) == bytes);
  CHECK(!memcmp(room, text, bytes) && n == in->bytes && !memcmp(&a, &in->from[from], n));
}
static void check(struct Inbox* in) {
  get(in, "one", 3, 0), get(in, large, sizeof(large), 1), get(in, "", 0, 0), get(in, "four", 4, 1);
  get(in, "five", 4, 3);
  if (in->of_both >= 0) get(in, "six", 3, 4);
  char byte;
  CHECK(recv(in->fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK(send(in->shut, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
  CHECK(sendto(in->fd, "back", 4, 0, (void*)&in->from[0], in->bytes) == 4);
  CHECK(recv(in->there, &byte, 1, 0) == 1);
}
static struct sockaddr_un name(const char* text) {
  struct sockaddr_un a = {AF_UNIX, ""};
  strcpy(a.sun_path, text);
  return a;
}
static struct ucred credentials_of(int fd, const char* text) {
  char room[32] = "";
  union {
    char bytes[256];
    struct cmsghdr h;
  } control;
  struct iovec io = {room, sizeof(room)};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = 256};
  CHECK(recvmsg(fd, &m, MSG_DONTWAIT) == (long)strlen(text) && !strcmp(room, text));
  struct ucred c;
  CHECK(CMSG_FIRSTHDR(&m)->cmsg_type == SCM_CREDENTIALS);
  memcpy(&c, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(c));
  return c;
}
int main(void) {
  for (size_t i = 0; i < sizeof(large); ++i) large[i] = (char)(i * 7);
  struct Inbox v4, v6;
  int have6 = access("/proc/net/if_inet6", F_OK) == 0;
  fill(&v4, AF_INET);
  if (have6) fill(&v6, AF_INET6);
  // Unix datagrams: from a socket whose name is gone, from one that was closed, without a sender.
  struct sockaddr_un box = name("box"), first = name("first"), second = name("second"), from;
  int inbox = socket(AF_UNIX, SOCK_DGRAM, 0), a = socket(AF_UNIX, SOCK_DGRAM, 0);
  int b = socket(AF_UNIX, SOCK_DGRAM, 0), c = socket(AF_UNIX, SOCK_DGRAM, 0);
  CHECK(bind(inbox, (void*)&box, sizeof(box)) == 0 && bind(a, (void*)&first, sizeof(first)) == 0);
  CHECK(bind(b, (void*)&second, sizeof(second)) == 0);
  CHECK(sendto(a, "a", 1, 0, (void*)&box, sizeof(box)) == 1);
  CHECK(sendto(b, "bb", 2, 0, (void*)&box, sizeof(box)) == 2);
  CHECK(sendto(c, "ccc", 3, 0, (void*)&box, sizeof(box)) == 3);
  CHECK(unlink("first") == 0 && close(b) == 0);
  // Credentials of a child that has ended, and none where the program did not ask for them.
  int asks[2], stream[2], on = 1;
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, asks) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
  CHECK(send(asks[0], "silent", 6, 0) == 6);
  CHECK(setsockopt(asks[1], SOL_SOCKET, SO_PASSCRED, &on, 4) == 0);
  CHECK(setsockopt(stream[1], SOL_SOCKET, SO_PASSCRED, &on, 4) == 0);
  CHECK(send(asks[0], "own", 3, 0) == 3 && send(stream[0], "parent", 6, 0) == 6);
  pid_t child = fork();
  if (child == 0) _exit(!(send(asks[0], "child", 5, 0) == 5 && send(stream[0], "kid", 3, 0) == 3));
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  // Urgent bytes: in the middle, and at the beginning.
  int urgent[2], start[2], has_urgent;
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, urgent) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, start) == 0);
  has_urgent = send(start[0], "!", 1, MSG_OOB) == 1;
  CHECK(send(start[0], "rest", 4, 0) == 4);
  CHECK(send(urgent[0], "before", 6, 0) == 6);
  if (has_urgent) CHECK(send(urgent[0], "!", 1, MSG_OOB) == 1);
  CHECK(send(urgent[0], "after", 5, 0) == 5);
  // Closed with something unread.
  int reset[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, reset) == 0 && write(reset[0], "lost", 4) == 4);
  CHECK(close(reset[1]) == 0);
  struct ucred peer, after;
  socklen_t n = sizeof(peer);
  CHECK(getsockopt(stream[0], SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.pid == getpid());
  ready_and_wait();
  check(&v4);
  if (have6) check(&v6);
  char text[32];
  n = sizeof(from);
  CHECK(recvfrom(inbox, text, 8, 0, (void*)&from, &n) == 1 && !strcmp(from.sun_path, "first"));
  n = sizeof(from);
  CHECK(recvfrom(inbox, text, 8, 0, (void*)&from, &n) == 2 && !strcmp(from.sun_path, "second"));
  n = sizeof(from);
  CHECK(recvfrom(inbox, text, 8, 0, (void*)&from, &n) == 3 && n == 0);
  CHECK(access("first", F_OK) != 0);
  n = sizeof(after);
  CHECK(getsockopt(stream[0], SOL_SOCKET, SO_PEERCRED, &after, &n) == 0 && after.pid == getpid());
  CHECK(after.uid == peer.uid && after.gid == peer.gid);
  struct ucred silent = credentials_of(asks[1], "silent"), self = credentials_of(asks[1], "own");
  struct ucred kid = credentials_of(asks[1], "child");
  CHECK(silent.pid == 0 && self.uid == getuid() && self.gid == getgid() && kid.uid == getuid());
  CHECK(self.pid == peer.pid || was_restored());
  self = credentials_of(stream[1], "parent"), kid = credentials_of(stream[1], "kid");
  // Where process numbers can be had.
  if (getpid() == peer.pid) CHECK(self.pid == getpid() && kid.pid == child);
  int at_mark = -1;
  if (has_urgent) {
    CHECK(ioctl(start[1], 0x8905 /* SIOCATMARK */, &at_mark) == 0 && at_mark == 1);
    CHECK(recv(start[1], text, 1, MSG_OOB) == 1 && *text == '!');
  }
  CHECK(recv(start[1], text, 8, 0) == 4 && !memcmp(text, "rest", 4));
  CHECK(recv(urgent[1], text, 32, 0) == 6 || !has_urgent);
  if (has_urgent) {
    CHECK(ioctl(urgent[1], 0x8905, &at_mark) == 0 && at_mark == 1);
    CHECK(recv(urgent[1], text, 1, MSG_OOB) == 1 && *text == '!');
    CHECK(recv(urgent[1], text, 32, 0) == 5 && !memcmp(text, "after", 5));
  }
  CHECK(read(reset[0], text, 8) == -1 && errno == ECONNRESET && read(reset[0], text, 8) == 0);
  return survived();
}
