// A server whose workers, forked, accept from one listening socket, clients in processes of their own: connections that several
// processes have open, that wait to be accepted, and whose client or worker is gone.
#include <netinet/in.h>
#include <sys/socket.h>
#include "tree.h"
static struct sockaddr_in at = {AF_INET, 0, {0}, ""};
static int client(void) {
  const int c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(c, (struct sockaddr*)&at, sizeof(at)) == 0);
  return c;
}
static void expect(int fd, const char* text) {
  char got[64] = "";
  CHECK(recv(fd, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
}
static void say(int fd, const char* text) { CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text)); }
static void wait_for_go_on(void) {
  while (access("go_on", F_OK) != 0) sleep_ms(5);
}
int main(void) {
  socklen_t n = sizeof(at);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr*)&at, n) == 0 && listen(listener, 16) == 0);
  CHECK(getsockname(listener, (struct sockaddr*)&at, &n) == 0);
  int told[2];
  CHECK(pipe(told) == 0);
  // Two clients with a process each: one is served by a worker, one by this process.
  pid_t clients[2];
  for (int i = 0; i < 2; ++i) {
    if ((clients[i] = fork()) == 0) {
      close(listener);
      const int c = client();
      say(c, "hello");
      CHECK(write(told[1], "x", 1) == 1);
      wait_for_go_on();
      expect(c, "answer");
      say(c, "thanks");
      char byte;
      CHECK(recv(c, &byte, 1, 0) == 0);
      _exit(50);
    }
    char byte;
    CHECK(read(told[0], &byte, 1) == 1);  // one after the other, for the order in the queue
  }
  const int first = accept(listener, NULL, NULL);
  CHECK(first >= 0);
  pid_t worker = fork();
  if (worker == 0) {
    const int second = accept(listener, NULL, NULL);
    CHECK(second >= 0);
    say(second, "answer");
    CHECK(write(told[1], "x", 1) == 1);
    wait_for_go_on();
    expect(second, "hello");
    expect(second, "thanks");
    // Open in the parent, too.
    say(first, "ans");
    CHECK(write(told[1], "y", 1) == 1);
    _exit(50);
  }
  char byte;
  CHECK(read(told[0], &byte, 1) == 1);
  // One whose client process is gone.
  pid_t gone = fork();
  if (gone == 0) {
    say(client(), "left this");
    _exit(50);
  }
  const int left = accept(listener, NULL, NULL);
  CHECK(left >= 0 && wait_status(gone) == 50);
  // One that has not been accepted yet, of another process.
  pid_t waiting = fork();
  if (waiting == 0) {
    close(listener), close(first);
    const int c = client();
    CHECK(write(told[1], "x", 1) == 1);
    wait_for_go_on();
    say(c, "at last");
    expect(c, "welcome");
    _exit(50);
  }
  CHECK(read(told[0], &byte, 1) == 1);
  ready_and_wait();
  expect(first, "hello");
  CHECK(read(told[0], &byte, 1) == 1 && byte == 'y');
  say(first, "wer");
  expect(first, "thanks");
  CHECK(wait_status(worker) == 50 && close(first) == 0);
  for (int i = 0; i < 2; ++i) CHECK(wait_status(clients[i]) == 50);
  expect(left, "left this");
  CHECK(recv(left, &byte, 1, 0) == 0);
  const int last = accept(listener, NULL, NULL);
  CHECK(last >= 0);
  expect(last, "at last");
  say(last, "welcome");
  CHECK(wait_status(waiting) == 50);
  return survived();
}
