// A connection that sent something and was closed before it was accepted, which is a moment after a
// snapshot was asked for: what it sent cannot be read.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
static int taken = -1;
static void* accept_late(void* listening) {
  sleep_ms(300);
  taken = accept((int)(intptr_t)listening, NULL, NULL);
  return NULL;
}
int main(void) {
  struct sockaddr_un a = {AF_UNIX, "server"};
  int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(s, (struct sockaddr*)&a, sizeof(a)) == 0 && listen(s, 7) == 0);
  CHECK(connect(c, (struct sockaddr*)&a, sizeof(a)) == 0 && write(c, "early", 5) == 5 && close(c) == 0);
  pthread_t thread = start_thread(accept_late, (void*)(intptr_t)s);
  ready_and_wait();
  CHECK(pthread_join(thread, NULL) == 0);
  char text[8];
  CHECK(taken >= 0 && read(taken, text, 8) == 5 && memcmp(text, "early", 5) == 0);
  CHECK(read(taken, text, 8) == 0);
  return survived();
}
