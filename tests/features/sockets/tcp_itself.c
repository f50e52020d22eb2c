// A TCP socket that is connected to itself, with nothing unread, so that its port is kept for a while when the program is killed:
// an ordinary user, who cannot free it, gets another one.
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
static void talk(int fd, const char* text) {
  char got[16] = "";
  CHECK(send(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
  CHECK(recv(fd, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text) && !strcmp(got, text));
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""}, own, other;
  socklen_t n = sizeof(a);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0 && bind(fd, (struct sockaddr*)&a, n) == 0 && getsockname(fd, (struct sockaddr*)&a, &n) == 0);
  CHECK(connect(fd, (struct sockaddr*)&a, n) == 0);
  talk(fd, "before");
  ready_and_wait();
  talk(fd, "after");
  CHECK(getsockname(fd, (struct sockaddr*)&own, &n) == 0 && getpeername(fd, (struct sockaddr*)&other, &n) == 0);
  CHECK(own.sin_port == other.sin_port && (own.sin_port == a.sin_port || getuid() != 0));
  return survived();
}
