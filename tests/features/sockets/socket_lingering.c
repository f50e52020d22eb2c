// A port whose connections have ended a moment ago, without SO_REUSEADDR: the kernel keeps it for a
// minute (TIME_WAIT). Once the listening side ended first; once the other one, which is in the way
// of the connection that the program makes again from the same port; and once both at the same time.
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
static struct sockaddr_in a = {AF_INET, 0, {0}, ""};
static socklen_t n = sizeof(a);
static int l;
static int connected(struct sockaddr_in* from, int* accepted) {
  int c = socket(AF_INET, SOCK_STREAM, 0);
  if (from) CHECK(bind(c, (void*)from, n) == 0);
  CHECK(connect(c, (void*)&a, n) == 0 && (*accepted = accept(l, NULL, NULL)) >= 0);
  return c;
}
static void end(int first, int then) {
  char byte;
  CHECK(close(first) == 0 && read(then, &byte, 1) == 0 && close(then) == 0);
}
static void fill(int fd) {
  static char bytes[65536];
  while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) continue;
  CHECK(errno == EAGAIN);
}
static void empty(int fd) {
  static char bytes[65536];
  ssize_t got;
  while ((got = read(fd, bytes, sizeof(bytes))) > 0) continue;
  CHECK(got == 0);
}
// The end of each lies behind bytes that the other one has no room for: neither sees it before it
// has ended its own half.
static void end_both(int one, int other) {
  fill(one), fill(other);
  CHECK(shutdown(one, SHUT_WR) == 0 && shutdown(other, SHUT_WR) == 0);
  empty(one), empty(other);
  CHECK(close(one) == 0 && close(other) == 0);
}
int main(void) {
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  l = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(l, (void*)&a, n) == 0 && listen(l, 3) == 0 && getsockname(l, (void*)&a, &n) == 0);
  int s, kept = connected(NULL, &s), c, t;
  for (int i = 0; i < 3; ++i) {
    c = connected(NULL, &t);
    end(t, c);
  }
  c = connected(NULL, &t);
  end_both(c, t);
  struct sockaddr_in from = a, now;
  from.sin_port = 0;
  c = connected(&from, &t);
  CHECK(getsockname(c, (void*)&from, &n) == 0);
  end(c, t);
  struct sockaddr_in before;
  CHECK(getsockname(kept, (void*)&before, &n) == 0);
  struct timespec begin, restored;
  CHECK(clock_gettime(CLOCK_REALTIME, &begin) == 0);
  ready_and_wait();
  CHECK(clock_gettime(CLOCK_REALTIME, &restored) == 0);
  if (restored.tv_sec - begin.tv_sec > 40) return 1;  // it was waited for
  CHECK(getsockname(kept, (void*)&now, &n) == 0 && now.sin_port == before.sin_port);
  CHECK(write(kept, "x", 1) == 1);
  char byte;
  CHECK(read(s, &byte, 1) == 1 && byte == 'x');
  connected(NULL, &t);
  return survived();
}
