// Connections to a listening socket of another process, which accepts a moment after it was asked
// for a snapshot: it is taken then, and what was sent meanwhile is in it.
#include <sys/socket.h>
#include <sys/un.h>
#include "tree.h"
static struct sockaddr_un name = {AF_UNIX, "late"};
static void serve(int listening) {
  while (access("go_on", F_OK) != 0 && access("asked", F_OK) != 0) sleep_ms(2);
  sleep_ms(300);
  int taken[2];
  for (int i = 0; i < 2; ++i) CHECK((taken[i] = accept(listening, NULL, NULL)) >= 0);
  while (access("go_on", F_OK) != 0) sleep_ms(2);
  char text[8];
  CHECK(read(taken[0], text, 8) == 5 && memcmp(text, "early", 5) == 0);
  CHECK(write(taken[1], "answer", 6) == 6);
  _exit(50);
}
int main(void) {
  int s = socket(AF_UNIX, SOCK_STREAM, 0), c[2];
  CHECK(bind(s, (struct sockaddr*)&name, sizeof name) == 0 && listen(s, 7) == 0);
  pid_t child = fork();
  if (child == 0) serve(s);
  close(s);
  for (int i = 0; i < 2; ++i) {
    c[i] = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(c[i], (struct sockaddr*)&name, sizeof name) == 0);
  }
  CHECK(write(c[0], "early", 5) == 5);
  // The snapshot is asked for when we say so.
  CHECK(close(open("asked", O_CREAT | O_WRONLY, 0600)) == 0);
  ready_and_wait();
  char text[8];
  CHECK(read(c[1], text, 8) == 6 && memcmp(text, "answer", 6) == 0);
  CHECK(wait_status(child) == 50);
  return survived();
}
