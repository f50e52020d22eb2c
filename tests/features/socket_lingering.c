// A port whose connections have ended a moment ago (TIME_WAIT), without SO_REUSEADDR. Who is not
// root has to wait for it, so it sets the option.
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), on = 1, s;
  if (getuid()) CHECK(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, 4) == 0);
  CHECK(bind(l, (void*)&a, n) == 0 && listen(l, 3) == 0 && getsockname(l, (void*)&a, &n) == 0);
  CHECK(connect(c, (void*)&a, n) == 0 && (s = accept(l, NULL, NULL)) >= 0);
  char byte;
  CHECK(close(s) == 0 && read(c, &byte, 1) == 0 && close(c) == 0);
  ready_and_wait();
  c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(c, (void*)&a, n) == 0 && accept(l, NULL, NULL) >= 0);
  return survived();
}
