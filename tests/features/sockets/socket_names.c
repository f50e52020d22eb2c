// Names of Unix sockets: removed, given again to another socket, of both ends of connections, of
// ends whose listening socket is closed; datagram sockets connected one way, in a chain, to
// themselves. Every socket has the addresses that it had.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
enum { kMost = 32 };
static int fds[kMost], count;
static struct sockaddr_un own[kMost], peer[kMost];
static socklen_t own_bytes[kMost], peer_bytes[kMost];
static int keep(int fd) {
  CHECK(fd >= 0 && count < kMost);
  return fds[count++] = fd;
}
static void look(int i, struct sockaddr_un* o, socklen_t* on, struct sockaddr_un* p, socklen_t* pn) {
  *on = sizeof(*o), *pn = sizeof(*p);
  memset(o, 0, sizeof(*o)), memset(p, 0, sizeof(*p));
  CHECK(getsockname(fds[i], (void*)o, on) == 0);
  if (getpeername(fds[i], (void*)p, pn)) *pn = 0;
}
static struct sockaddr_un at(const char* name, socklen_t* n) {
  struct sockaddr_un a = {AF_UNIX, ""};
  *n = 2 + strlen(name) + 1;
  if (*name == '@') {
    *n = 3 + sprintf(a.sun_path + 1, "%s-%d", name + 1, getpid());
  } else {
    strcpy(a.sun_path, name);
  }
  return a;
}
static int bound(int fd, const char* name) {
  socklen_t n;
  struct sockaddr_un a = at(name, &n);
  CHECK(bind(fd, (void*)&a, n) == 0);
  return fd;
}
static int to(int fd, const char* name) {
  socklen_t n;
  struct sockaddr_un a = at(name, &n);
  CHECK(connect(fd, (void*)&a, n) == 0);
  return fd;
}
static int named(int type, const char* name) {
  return keep(bound(socket(AF_UNIX, type, 0), name));
}
static int listening(const char* name) {
  int s = named(SOCK_STREAM, name);
  CHECK(listen(s, 5) == 0);
  return s;
}
static void talk(int from, int where, const char* what) {
  char text[8] = "";
  CHECK(send(from, what, strlen(what), 0) == (long)strlen(what));
  CHECK(recv(where, text, sizeof(text), MSG_DONTWAIT) == (long)strlen(what) && !strcmp(text, what));
}
int main(void) {
  char folder[200], path[256];
  CHECK(getcwd(folder, sizeof(folder)));
  // A name that was removed, and one that was removed and given again; absolute and relative.
  snprintf(path, sizeof(path), "%s/sub", folder);
  CHECK(mkdir(path, 0755) == 0);
  snprintf(path, sizeof(path), "%.80s/sub/again", folder);
  int old = listening(path);
  CHECK(unlink(path) == 0);
  int new = listening(path), gone = listening("gone"), odd = named(SOCK_DGRAM, "sub/gone");
  CHECK(unlink("gone") == 0 && unlink("sub/gone") == 0);
  // Both ends have names; then the listening socket goes.
  for (int i = 0; i < 2; ++i) {
    const char* name = i ? "@server" : "server";
    int l = bound(socket(AF_UNIX, SOCK_STREAM, 0), name);
    CHECK(listen(l, 5) == 0);
    int client = named(SOCK_STREAM, i ? "@client" : "client");
    to(client, name);
    keep(accept(l, NULL, NULL));
    int left = keep(accept(l + 0 * to(socket(AF_UNIX, SOCK_STREAM, 0), name), NULL, NULL));
    (void)left;
    close(l);
  }
  // While it is there: one end out of it, and one whose client has gone.
  int l = listening("@there"), client = keep(to(socket(AF_UNIX, SOCK_STREAM, 0), "@there"));
  int accepted = keep(accept(l, NULL, NULL)), late = to(socket(AF_UNIX, SOCK_STREAM, 0), "@there");
  int alone = keep(accept(l, NULL, NULL));
  CHECK(write(late, "left", 4) == 4 && close(late) == 0);
  // Pairs that got names afterwards.
  int pair[2], chain[3];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
  keep(bound(pair[0], "one")), keep(bound(pair[1], "@two"));
  // Datagrams: to itself, in a chain, by names that are removed.
  int self = to(named(SOCK_DGRAM, "self"), "self"), hidden = to(named(SOCK_DGRAM, "hidden"), "hidden");
  CHECK(unlink("hidden") == 0);
  static const char* names[] = {"@r0", "r1", "r2"};
  for (int i = 0; i < 3; ++i) chain[i] = named(SOCK_DGRAM, names[i]);
  to(chain[0], names[1]), to(chain[1], names[2]);
  int first = named(SOCK_DGRAM, "first"), second = to(named(SOCK_DGRAM, "second"), "first");
  to(first, "second");
  CHECK(unlink("r2") == 0);
  CHECK(chmod("first", 0640) == 0);
  for (int i = 0; i < count; ++i) look(i, &own[i], &own_bytes[i], &peer[i], &peer_bytes[i]);
  ready_and_wait();
  for (int i = 0; i < count; ++i) {
    struct sockaddr_un o, p;
    socklen_t on, pn;
    look(i, &o, &on, &p, &pn);
    if (on != own_bytes[i] || memcmp(&o, &own[i], on) || pn != peer_bytes[i] ||
        memcmp(&p, &peer[i], pn))
      dprintf(1, "socket %d: %u %s (%s) to %u %s (%s), was %u %s to %u %s\n", i, on, o.sun_path,
              o.sun_path + 1, pn, p.sun_path, p.sun_path + 1, own_bytes[i], own[i].sun_path,
              peer_bytes[i], peer[i].sun_path);
    CHECK(on == own_bytes[i] && !memcmp(&o, &own[i], on));
    CHECK(pn == peer_bytes[i] && !memcmp(&p, &peer[i], pn));
  }
  CHECK(access("gone", F_OK) != 0 && access("sub/gone", F_OK) != 0 && access("r2", F_OK) != 0);
  // The name leads to the younger one.
  int c = to(socket(AF_UNIX, SOCK_STREAM, 0), path), d;
  CHECK(fcntl(old, F_SETFL, O_NONBLOCK) == 0 && fcntl(gone, F_SETFL, O_NONBLOCK) == 0);
  CHECK(accept(old, NULL, NULL) == -1 && errno == EAGAIN);
  CHECK((d = accept(new, NULL, NULL)) >= 0 && accept(gone, NULL, NULL) == -1);
  talk(c, d, "new"), talk(client, accepted, "there"), talk(pair[0], pair[1], "pair");
  talk(self, self, "self"), talk(hidden, hidden, "dark"), talk(second, first, "two");
  talk(chain[1], chain[2], "on"), CHECK(send(chain[0], "x", 1, 0) == -1 && errno == EPERM);
  char text[8];
  CHECK(read(alone, text, 8) == 4 && read(alone, text, 8) == 0);
  struct stat st;
  CHECK(stat("first", &st) == 0 && (st.st_mode & 07777) == 0640 && odd >= 0);
  return survived();
}
