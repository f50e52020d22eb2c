// An established TCP connection to another process comes back reset, or is there as ever when the
// program was not restored; a blocked read ends with ECONNRESET. Connections inside are reset too.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include "feature.h"
static int c, error;
static void* reader(void* a) {
  char x;
  long n = read(c, &x, 1);
  error = n < 0 ? errno : n == 0 ? 0 : x;
  return a;
}
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  int s = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(s, (struct sockaddr*)&a, sizeof(a)) == 0 && listen(s, 3) == 0 && getsockname(s, (struct sockaddr*)&a, &n) == 0);
  c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(c, (struct sockaddr*)&a, sizeof(a)) == 0);
  int d = accept(s, NULL, NULL);
  close(s);
  pthread_t t = start_thread(reader, NULL);
  sleep_ms(20);
  ready_and_wait();
  if (access("was_restored", F_OK) == 0) {
    pthread_join(t, NULL);
    CHECK(error == ECONNRESET);
    signal(SIGPIPE, SIG_IGN);
    char x;
    CHECK(read(d, &x, 1) == -1 && errno == ECONNRESET && read(d, &x, 1) == 0);
    CHECK(write(d, "x", 1) == -1 && errno == EPIPE);
    struct pollfd p = {d, POLLIN | POLLOUT, 0};
    CHECK(poll(&p, 1, 0) == 1 && (p.revents & POLLHUP));
  } else {
    CHECK(write(d, "y", 1) == 1);
    pthread_join(t, NULL);
    CHECK(error == 'y');
  }
  return survived();
}
