// A master that stays root and two workers of other users, as nginx and php-fpm are: the kernel compares descriptors (kcmp) for
// no worker with the master's or the other worker's. All have the master's log, listening socket, socket pair, event counter and
// epoll set, and each worker has a file, an event counter and an epoll set of its own that look like the other's.
#include <arpa/inet.h>
#include <grp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "tree.h"
enum { kWorkers = 2 };
static const uid_t users[kWorkers] = {65534, 1};
static int as_root, log_file, listener, common, event, channel[kWorkers][2];
static struct {
  _Atomic int go, done;
}* shared;
static void watch(int set, int fd, uint64_t data) {
  struct epoll_event e = {EPOLLIN, {.u64 = data}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}
static void drop(uid_t user) {
  const gid_t groups[] = {7, user};
  if (!as_root) return;
  CHECK(setgroups(2, groups) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
}
static int has_dropped(uid_t user) {
  uid_t r, e, s;
  gid_t groups[8];
  if (!as_root) return 1;
  if (getresuid(&r, &e, &s) != 0 || r != user || e != user || s != user) return 0;
  return getgroups(8, groups) == 2 && groups[0] + groups[1] == 7 + user && setresuid(0, 0, 0) != 0 && errno == EPERM &&
         open("/proc/1/environ", O_RDONLY) < 0 && errno == EACCES;
}
static int worker(int self) {
  char text[8], said[4];
  struct epoll_event e[4];
  uint64_t count;
  const int file = open("text", O_RDONLY);
  drop(users[self]);
  const int own_event = eventfd(0, 0), own = epoll_create1(0);
  CHECK(file >= 0 && own_event >= 0 && own >= 0 && has_dropped(users[self]));
  watch(own, own_event, 100 + (uint64_t)self);
  CHECK(write(channel[self][1], "r", 1) == 1);
  while (!shared->go) sleep_ms(5);  // (it may not look into the folder)
  if (!has_dropped(users[self])) return 1;
  ++shared->done;
  // What looked alike is not the same: each reads its file from the start, and counts its own events.
  if (read(file, text, 4) != 4 || memcmp(text, "abcd", 4) != 0) return 2;
  const uint64_t one = 1;
  if (write(own_event, &one, 8) != 8 || epoll_wait(own, e, 4, 1000) != 1 || e[0].data.u64 != 100 + (uint64_t)self) return 3;
  sleep_ms(200);  // the other one has, too
  if (read(own_event, &count, 8) != 8 || count != 1) return 4;
  // What was the master's still is.
  if (read(channel[self][1], said, 4) != 3 || memcmp(said, "yes", 3) != 0) return 5;
  if (write(event, &one, 8) != 8) return 6;
  const int client = accept(listener, NULL, NULL);
  if (client < 0 || write(client, "hello", 5) != 5 || close(client) != 0) return 7;
  if (dprintf(log_file, "worker %d\n", self) != 9) return 8;
  return 50;
}
static int work_of(int self) {
  const int result = worker(self);
  if (result != 50) dprintf(1, "worker %d: step %d (%s)\n", self, result, strerror(errno));
  return result;
}
static void be_client(const struct sockaddr_in* to) {
  const struct timeval patience = {20, 0};
  char text[8];
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
  CHECK(connect(fd, (const struct sockaddr*)to, sizeof(*to)) == 0 && read(fd, text, 8) == 5 && close(fd) == 0);
}
int main(void) {
  as_root = getuid() == 0;
  umask(022);
  const int text = open("text", O_WRONLY | O_CREAT | O_TRUNC, 0644), roots = open("roots", O_RDWR | O_CREAT, 0600);
  CHECK(text >= 0 && write(text, "abcdefgh", 8) == 8 && close(text) == 0 && roots >= 0);
  log_file = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  event = eventfd(0, 0), common = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(name);
  CHECK(log_file >= 0 && event >= 0 && common >= 0 && bind(listener, (struct sockaddr*)&name, size) == 0);
  CHECK(listen(listener, 8) == 0 && getsockname(listener, (struct sockaddr*)&name, &size) == 0);
  watch(common, event, 7);
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child[kWorkers];
  char byte;
  for (int i = 0; i < kWorkers; ++i) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel[i]) == 0);
    if ((child[i] = fork()) == 0) _exit(work_of(i));
    CHECK(child[i] > 0 && read(channel[i][0], &byte, 1) == 1 && byte == 'r' && write(channel[i][0], "yes", 3) == 3);
  }
  ready_and_wait();
  shared->go = 1;
  be_client(&name), be_client(&name);
  for (int i = 0; i < kWorkers; ++i) CHECK(wait_status(child[i]) == 50);
  uint64_t count = 0;
  struct epoll_event e[4];
  struct stat st;
  CHECK(shared->done == kWorkers && epoll_wait(common, e, 4, 0) == 1 && e[0].data.u64 == 7);
  CHECK(read(event, &count, 8) == 8 && count == kWorkers && fstat(log_file, &st) == 0 && st.st_size == 18);
  CHECK(st.st_uid == getuid() && geteuid() == getuid() && write(roots, "x", 1) == 1);
  return survived();
}
