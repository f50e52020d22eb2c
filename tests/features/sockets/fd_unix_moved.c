// Unix sockets whose files the program moved after it had bound them, as servers do that may not be
// found half ready: within the folder, into one below, by a relative name, from a name that another
// socket got afterwards; a datagram socket; a connection of the program's own to one. All are found
// where they were moved to, with their rights, and have the addresses that they had.
#include <sys/socket.h>
#include <sys/un.h>
#include "feature.h"
static char folder[80];
static struct sockaddr_un at(const char* name) {
  struct sockaddr_un a = {AF_UNIX, ""};
  snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
  return a;
}
static const char* in_folder(const char* name) {
  static char paths[4][108];
  static int next;
  char* path = paths[next++ % 4];
  snprintf(path, 108, "%s/%s", folder, name);
  return path;
}
static int bound(int type, const char* name) {
  const int s = socket(AF_UNIX, type, 0);
  struct sockaddr_un a = at(name);
  CHECK(s >= 0 && bind(s, (void*)&a, sizeof(a)) == 0);
  return s;
}
static int listening(const char* name) {
  const int s = bound(SOCK_STREAM, name);
  CHECK(listen(s, 5) == 0);
  return s;
}
static int connected(const char* name) {
  const int s = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un a = at(name);
  CHECK(s >= 0 && connect(s, (void*)&a, sizeof(a)) == 0);
  return s;
}
static void check_name(int s, const char* name) {
  struct sockaddr_un a = {0};
  socklen_t n = sizeof(a);
  CHECK(getsockname(s, (void*)&a, &n) == 0 && !strcmp(a.sun_path, name));
}
static void check_listener(int s, const char* bound_to, const char* place, mode_t mode) {
  struct stat st;
  check_name(s, bound_to);
  CHECK(stat(place, &st) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 07777) == mode);
  const int client = connected(place), server = accept(s, NULL, NULL);
  char c = 0;
  CHECK(server >= 0 && write(client, "x", 1) == 1 && read(server, &c, 1) == 1 && c == 'x');
  check_name(server, bound_to);
  close(client), close(server);
}
int main(void) {
  CHECK(getcwd(folder, sizeof(folder)));
  CHECK(mkdir("below", 0755) == 0);
  const int same = listening(in_folder("same.tmp"));
  CHECK(chmod("same.tmp", 0640) == 0 && rename("same.tmp", "same") == 0);
  const int below = listening(in_folder("below.tmp"));
  CHECK(chmod("below.tmp", 0604) == 0 && rename("below.tmp", "below/socket") == 0);
  const int relative = listening("relative.tmp");
  CHECK(chmod("relative.tmp", 0755) == 0 && rename("relative.tmp", "relative") == 0);
  const int first = listening(in_folder("again"));
  CHECK(chmod("again", 0600) == 0 && rename("again", "first") == 0);
  const int second = listening(in_folder("again"));
  CHECK(chmod("again", 0700) == 0);
  const int datagrams = bound(SOCK_DGRAM, in_folder("datagrams.tmp"));
  CHECK(rename("datagrams.tmp", "datagrams") == 0);
  const int client = connected("same"), server = accept(same, NULL, NULL);
  CHECK(server >= 0);

  ready_and_wait();

  check_listener(same, in_folder("same.tmp"), "same", 0640);
  check_listener(below, in_folder("below.tmp"), "below/socket", 0604);
  check_listener(relative, "relative.tmp", "relative", 0755);
  check_listener(first, in_folder("again"), "first", 0600);
  check_listener(second, in_folder("again"), "again", 0700);
  CHECK(access("same.tmp", F_OK) && access("below.tmp", F_OK) && access("relative.tmp", F_OK) &&
        access("datagrams.tmp", F_OK));
  struct sockaddr_un to = at("datagrams");
  const int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
  char c = 0;
  check_name(datagrams, in_folder("datagrams.tmp"));
  CHECK(sendto(sender, "d", 1, 0, (void*)&to, sizeof(to)) == 1);
  CHECK(recv(datagrams, &c, 1, 0) == 1 && c == 'd');
  struct sockaddr_un peer = {0};
  socklen_t n = sizeof(peer);
  CHECK(getpeername(client, (void*)&peer, &n) == 0 && !strcmp(peer.sun_path, in_folder("same.tmp")));
  CHECK(write(client, "y", 1) == 1 && read(server, &c, 1) == 1 && c == 'y');
  return survived();
}
