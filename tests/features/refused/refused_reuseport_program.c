// A program that chooses which socket of a group gets what arrives (SO_ATTACH_REUSEPORT_CBPF), which nothing shows: refused by name.
// One that was detached again is not there.
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
static int member(struct sockaddr_in* a) {
  int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
  socklen_t n = sizeof(*a);
  CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0);
  CHECK(bind(fd, (void*)a, n) == 0 && getsockname(fd, (void*)a, &n) == 0);
  return fd;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  struct sock_filter second[] = {{BPF_RET | BPF_K, 0, 0, 1}};
  struct sock_fprog program = {1, second};
  int fds[2] = {member(&a), member(&a)};
  CHECK(setsockopt(fds[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) == 0);
  ready_and_wait();
  int from = socket(AF_INET, SOCK_DGRAM, 0);
  char byte;
  for (int i = 0; i < 8; ++i) {
    CHECK(sendto(from, "x", 1, 0, (void*)&a, sizeof(a)) == 1);
    CHECK(recv(fds[1], &byte, 1, 0) == 1);
  }
  return survived();
}
