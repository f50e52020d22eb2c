// A child whose standard input and output are a socket pair of its parent's, and one whose are a TCP connection to it: they come
// back with each other, not with the launcher's.
#include <netinet/in.h>
#include <sys/socket.h>
#include "tree.h"
static int first_end = -1;  // which the second child must not keep open
static pid_t start_child(int own, int parents) {
  const pid_t child = fork();
  if (child) return child;
  close(parents);
  close(first_end);
  CHECK(dup2(own, 0) == 0 && dup2(own, 1) == 1 && close(own) == 0);
  for (char text[64];;) {
    const ssize_t n = read(0, text, sizeof(text));
    if (n == 0) _exit(50);
    CHECK(n > 0 && write(1, text, (size_t)n) == n);
  }
}
static void echo(int fd, const char* text) {
  char got[64] = "";
  CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  CHECK(recv(fd, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
}
int main(void) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(at);
  const int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr*)&at, n) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, (struct sockaddr*)&at, &n) == 0);
  CHECK(connect(client, (struct sockaddr*)&at, n) == 0);
  const int server = accept(listener, NULL, NULL);
  CHECK(server >= 0 && close(listener) == 0);
  const pid_t by_pair = start_child(pair[0], pair[1]);
  close(pair[0]);
  first_end = pair[1];
  const int ends[2] = {pair[1], server};
  const pid_t by_tcp = start_child(client, server);
  close(client);
  for (int i = 0; i < 2; ++i) echo(ends[i], "before");
  CHECK(write(ends[0], "on its way", 10) == 10);
  ready_and_wait();
  char got[16] = "";
  CHECK(recv(ends[0], got, 10, MSG_WAITALL) == 10 && strcmp(got, "on its way") == 0);
  for (int i = 0; i < 2; ++i) echo(ends[i], "after");
  for (int i = 0; i < 2; ++i) CHECK(shutdown(ends[i], SHUT_WR) == 0);
  CHECK(wait_status(by_pair) == 50 && wait_status(by_tcp) == 50);
  return survived();
}
