// Bytes of Unix streams that were sent with MSG_OOB and have been received: what one call reads
// still ends where they were, and SIOCATMARK tells it.
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <linux/sockios.h>
#include "feature.h"
static void take_urgent(const int s[2]) {
  char byte;
  if (send(s[0], "!", 1, MSG_OOB) != 1) absent("MSG_OOB of Unix sockets");
  CHECK(recv(s[1], &byte, 1, MSG_OOB) == 1 && byte == '!');
}
static void put(const int s[2], const char* text) { CHECK(write(s[0], text, strlen(text)) == (ssize_t)strlen(text)); }
static int at_mark(const int s[2]) {
  int at = -1;
  CHECK(ioctl(s[1], SIOCATMARK, &at) == 0);
  return at;
}
// What each call reads, with '|' between.
static void read_all(const int s[2], char* to) {
  for (ssize_t n; (n = recv(s[1], to, 16, MSG_DONTWAIT)) > 0; *to++ = '|') to += n;
  *to = 0;
}
int main(void) {
  int between[3][2], twice[3][2], first[3][2];
  char natively[64], now[64];
  // [0] shows what this kernel does; [1] is looked at after the snapshot, [2] with SO_OOBINLINE on.
  for (int i = 0; i < 3; ++i) {
    const int on = i == 2;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, between[i]) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, twice[i]) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, first[i]) == 0);
    put(between[i], "ab"), take_urgent(between[i]), put(between[i], "cd");
    put(twice[i], "ab"), take_urgent(twice[i]), put(twice[i], "cd"), take_urgent(twice[i]), put(twice[i], "ef");
    take_urgent(first[i]), put(first[i], "gh");
    CHECK(setsockopt(first[i][1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
  }
  const int mark = at_mark(first[1]);
  ready_and_wait();
  CHECK(at_mark(first[1]) == mark && at_mark(first[2]) == mark && at_mark(between[1]) == 0);
  int in_line = 0;
  socklen_t size = sizeof(in_line);
  CHECK(getsockopt(first[2][1], SOL_SOCKET, SO_OOBINLINE, &in_line, &size) == 0 && in_line == 1);
  char byte;
  CHECK(recv(between[1][1], &byte, 1, MSG_OOB | MSG_DONTWAIT) == -1 && errno == EINVAL);
  read_all(between[1], now);
  CHECK(strcmp(now, "ab|cd|") == 0);
  read_all(twice[1], now);
  CHECK(strcmp(now, "ab|cd|ef|") == 0);
  read_all(first[0], natively), read_all(first[1], now);
  CHECK(strcmp(natively, now) == 0);
  return survived();
}
