// Descriptors on their way in a socket that parent and child both have: some that look alike, of
// which the child alone has one open; a socket that is itself on its way. Who asks who is at the
// other end, hears the same numbers and users as before.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "tree.h"
enum { kPassed = 4 };
static void pass(int through, const int* fds) {
  union {
    char bytes[CMSG_SPACE(kPassed * sizeof(int))];
    struct cmsghdr h;
  } control = {.h = {CMSG_LEN(kPassed * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
  struct iovec io = {"m", 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control,
                     .msg_controllen = sizeof(control)};
  memcpy(CMSG_DATA(&control.h), fds, kPassed * sizeof(int));
  CHECK(sendmsg(through, &m, 0) == 1);
}
static void receive(int through, int* fds) {
  char byte;
  union {
    char bytes[CMSG_SPACE(kPassed * sizeof(int))];
    struct cmsghdr h;
  } control;
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control,
                     .msg_controllen = sizeof(control)};
  CHECK(recvmsg(through, &m, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&m));
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), kPassed * sizeof(int));
}
static uint64_t count_of(int fd) {
  uint64_t n = 0;
  return read(fd, &n, 8) == 8 ? n : 0;
}
static pid_t peer_of(int fd) {
  struct ucred c;
  socklen_t n = sizeof(c);
  CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == getuid());
  return c.pid;
}
int main(void) {
  static const struct sockaddr_un name = {AF_UNIX, "peers.sock"};
  int way[2], go[2], inner[2], alike[3], listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, inner) == 0 && write(inner[1], "inner", 5) == 5);
  CHECK(bind(listener, (const void*)&name, sizeof(name)) == 0 && listen(listener, 3) == 0);
  for (int i = 0; i < 3; ++i) alike[i] = eventfd((unsigned)i + 1, EFD_NONBLOCK);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    int c = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(c, (const void*)&name, sizeof(name)) == 0);
    close(alike[0]), close(alike[2]), close(inner[0]), close(inner[1]), close(listener);
    char byte;
    CHECK(read(go[1], &byte, 1) == 1 && peer_of(c) == parent && peer_of(go[1]) == parent);
    uint64_t ten = 10;
    CHECK(write(alike[1], &ten, 8) == 8 && write(go[1], "k", 1) == 1);
    _exit(5);
  }
  int accepted = accept(listener, NULL, NULL);
  CHECK(accepted >= 0 && peer_of(accepted) == child);
  pass(way[0], (int[]){alike[0], alike[1], alike[2], inner[0]});
  for (int i = 0; i < 3; ++i) close(alike[i]);
  close(inner[0]);
  ready_and_wait();
  int got[kPassed];
  char text[8];
  receive(way[1], got);
  CHECK(peer_of(accepted) == child && peer_of(way[0]) == parent);
  CHECK(write(go[0], "g", 1) == 1 && read(go[0], text, 1) == 1);
  CHECK(count_of(got[0]) == 1 && count_of(got[1]) == 12 && count_of(got[2]) == 3);
  CHECK(read(got[3], text, 8) == 5 && !memcmp(text, "inner", 5));
  CHECK(wait_status(child) == 5);
  return survived();
}
