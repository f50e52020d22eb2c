// A connection that sent something and was closed, and is never accepted.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
int main(void) {
  struct sockaddr_un a = {AF_UNIX, "server"};
  int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(s, (struct sockaddr*)&a, sizeof(a)) == 0 && listen(s, 7) == 0);
  CHECK(connect(c, (struct sockaddr*)&a, sizeof(a)) == 0 && write(c, "early", 5) == 5 && close(c) == 0);
  ready_and_wait();
  char text[8];
  int taken = accept(s, NULL, NULL);
  CHECK(taken >= 0 && read(taken, text, 8) == 5);
  return survived();
}
