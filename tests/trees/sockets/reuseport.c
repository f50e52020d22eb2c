// A server that forks its workers before there is work: one listening socket that all accept from,
// and one for each on the same port.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include "tree.h"
enum { kWorkers = 3 };
static int listen_on(struct sockaddr_in* a, int several) {
  int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  socklen_t n = sizeof *a;
  CHECK(s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  if (several) CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
  CHECK(bind(s, (void*)a, n) == 0 && listen(s, 16) == 0 && getsockname(s, (void*)a, &n) == 0);
  return s;
}
static void serve(int shared, int own) {
  for (;;) {
    struct pollfd p[2] = {{shared, POLLIN, 0}, {own, POLLIN, 0}};
    CHECK(poll(p, 2, -1) > 0);
    for (int i = 0; i < 2; ++i) {
      if (!(p[i].revents & POLLIN)) continue;
      int c = accept4(p[i].fd, NULL, NULL, SOCK_CLOEXEC);
      if (c < 0) continue;
      char order, answer[2] = {i ? 'o' : 's', 0};
      if (recv(c, &order, 1, 0) == 1) {
        if (order == 'q') _exit(4);
        CHECK(send(c, answer, 1, MSG_NOSIGNAL) == 1);
      }
      close(c);
    }
  }
}
static char ask(const struct sockaddr_in* a, char order) {
  int c = socket(AF_INET, SOCK_STREAM, 0);
  char answer = 0;
  CHECK(connect(c, (const void*)a, sizeof *a) == 0 && send(c, &order, 1, MSG_NOSIGNAL) == 1);
  if (recv(c, &answer, 1, 0) != 1) answer = 0;
  close(c);
  return answer;
}
int main(void) {
  struct sockaddr_in shared = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in same = shared;
  int listener = listen_on(&shared, 0), own[kWorkers];
  CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
  pid_t worker[kWorkers];
  for (int i = 0; i < kWorkers; ++i) own[i] = listen_on(&same, 1);
  for (int i = 0; i < kWorkers; ++i) {
    if ((worker[i] = fork())) continue;
    for (int k = 0; k < kWorkers; ++k)
      if (k != i) close(own[k]);
    CHECK(fcntl(own[i], F_SETFL, O_NONBLOCK) == 0);
    serve(listener, own[i]);
  }
  for (int i = 0; i < kWorkers; ++i) close(own[i]);
  for (int i = 0; i < 20; ++i) CHECK(ask(&shared, 'a') == 's' && ask(&same, 'a') == 'o');
  ready_and_wait();
  for (int i = 0; i < 20; ++i) CHECK(ask(&shared, 'a') == 's' && ask(&same, 'a') == 'o');
  int left = kWorkers;
  for (int i = 0; i < kWorkers; ++i) {
    ask(i ? &shared : &same, 'q');
    int status;
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 4);
    --left;
  }
  CHECK(left == 0);
  return survived();
}
