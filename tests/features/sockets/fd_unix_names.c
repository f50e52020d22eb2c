// Unix sockets whose names were removed stay without, and the sender of a datagram is still shown.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
int main(void) {
  struct sockaddr_un a = {AF_UNIX, "dg"}, b = {AF_UNIX, ""};
  sprintf(b.sun_path + 1, "zh-%d", getpid());
  socklen_t bl = 2 + 1 + strlen(b.sun_path + 1);
  int s = socket(AF_UNIX, SOCK_DGRAM, 0), c = socket(AF_UNIX, SOCK_DGRAM, 0),
      l = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(s, (void*)&a, sizeof a) == 0 && bind(c, (void*)&b, bl) == 0);
  CHECK(sendto(c, "q", 1, 0, (void*)&a, sizeof a) == 1);
  CHECK(unlink("dg") == 0);
  struct sockaddr_un m = {AF_UNIX, "st"};
  CHECK(bind(l, (void*)&m, sizeof m) == 0 && listen(l, 3) == 0 && unlink("st") == 0);
  ready_and_wait();
  char x[8];
  struct sockaddr_un f;
  socklen_t fl = sizeof f;
  CHECK(recvfrom(s, x, 8, 0, (void*)&f, &fl) == 1);
  CHECK(access("dg", F_OK) != 0 && access("st", F_OK) != 0);
  CHECK(fl == bl && !memcmp(&f, &b, bl));
  CHECK(sendto(s, "r", 1, 0, (void*)&b, bl) == 1 && recv(c, x, 8, 0) == 1);
  return survived();
}
