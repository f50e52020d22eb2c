// Unix sockets with names: listening by path and in the abstract, connected inside and accepted or
// not yet, datagram bound.
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
static struct sockaddr_un path = {AF_UNIX, "server"}, abstract = {AF_UNIX, ""};
static socklen_t abstract_size;
static int listener(const struct sockaddr_un* a, socklen_t n) {
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(s, (const struct sockaddr*)a, n) == 0 && listen(s, 7) == 0);
  return s;
}
static int joined(const struct sockaddr_un* a, socklen_t n) {
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(connect(s, (const struct sockaddr*)a, n) == 0);
  return s;
}
int main(void) {
  abstract_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                  (size_t)sprintf(abstract.sun_path + 1, "feature-%d", getpid()));
  int a = listener(&path, sizeof(path)), b = listener(&abstract, abstract_size);
  int c = joined(&path, sizeof(path)), served = accept(a, NULL, NULL);
  CHECK(served >= 0 && write(c, "hello", 5) == 5);
  struct sockaddr_un mine = {AF_UNIX, "datagrams"};
  int waiting[2];  // not accepted yet, in this order
  for (int i = 0; i < 2; ++i) waiting[i] = joined(&abstract, abstract_size);
  int d = socket(AF_UNIX, SOCK_DGRAM, 0);
  CHECK(bind(d, (struct sockaddr*)&mine, sizeof(mine)) == 0);
  // A restore finds its folder gone.
  struct sockaddr_un deep = {AF_UNIX, "made/for/it"};
  CHECK(mkdir("made", 0700) == 0 && mkdir("made/for", 0700) == 0);
  int orphan = listener(&deep, sizeof(deep));
  CHECK(unlink("made/for/it") == 0 && rmdir("made/for") == 0 && rmdir("made") == 0);
  ready_and_wait();
  char text[16];
  CHECK(close(orphan) == 0);
  CHECK(read(served, text, 16) == 5 && write(served, "you", 3) == 3 && read(c, text, 16) == 3);
  struct sockaddr_un name;
  socklen_t n = sizeof(name);
  for (int i = 0; i < 2; ++i) {
    CHECK(write(waiting[i], i ? "second" : "first ", 6) == 6);
    int taken = accept(b, NULL, NULL);
    CHECK(taken >= 0 && read(taken, text, 16) == 6);
    CHECK(text[0] == (i ? 's' : 'f') && write(taken, "x", 1) == 1 && read(waiting[i], text, 1) == 1);
  }
  CHECK(getpeername(c, (struct sockaddr*)&name, &n) == 0 && strcmp(name.sun_path, "server") == 0);
  int later = joined(&path, sizeof(path)), other = joined(&abstract, abstract_size);
  int x = accept(a, NULL, NULL), y = accept(b, NULL, NULL);
  CHECK(x >= 0 && y >= 0 && write(later, "1", 1) == 1 && write(other, "2", 1) == 1);
  CHECK(read(x, text, 1) == 1 && *text == '1' && read(y, text, 1) == 1 && *text == '2');
  int e = socket(AF_UNIX, SOCK_DGRAM, 0);
  CHECK(sendto(e, "dg", 2, 0, (struct sockaddr*)&mine, sizeof(mine)) == 2 && read(d, text, 16) == 2);
  return survived();
}
