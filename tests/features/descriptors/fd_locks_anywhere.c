// Locks of what is no ordinary file: a folder, a named pipe, a file without a name, a file opened for reading only; and
// of a file that is on its way in a socket.
#include <sys/file.h>
#include <sys/socket.h>
#include "feature.h"

static int locked_for_others(const char* path) {
  const int fd = open(path, O_RDONLY | O_NONBLOCK);
  CHECK(fd >= 0);
  const int failed_to = flock(fd, LOCK_EX | LOCK_NB) != 0;
  CHECK(!failed_to || errno == EWOULDBLOCK);
  CHECK(close(fd) == 0);
  return failed_to;
}

static int locked_range(const char* path) {
  struct flock l = {.l_type = F_WRLCK, .l_start = 3, .l_len = 1};
  const int fd = open(path, O_RDWR);
  CHECK(fd >= 0 && fcntl(fd, F_OFD_GETLK, &l) == 0 && close(fd) == 0);
  return l.l_type != F_UNLCK;
}

static void send_away(int socket, int fd) {
  char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'f';
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(c), &fd, sizeof(int));
  CHECK(sendmsg(socket, &m, 0) == 1 && close(fd) == 0);
}

int main(void) {
  int pair[2];
  char path[64];
  CHECK(mkdir("folder", 0700) == 0 && mkfifo("pipe", 0600) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  for (const char** name = (const char*[]){"gone", "only_read", "away", "away_range", NULL}; *name; ++name)
    CHECK(close(open(*name, O_RDWR | O_CREAT | O_TRUNC, 0600)) == 0);
  const int folder = open("folder", O_RDONLY), pipe = open("pipe", O_RDWR | O_NONBLOCK), gone = open("gone", O_RDWR);
  const int only_read = open("only_read", O_RDONLY), away = open("away", O_RDONLY), range = open("away_range", O_RDWR);
  CHECK(unlink("gone") == 0);
  for (int i = 0; i < 5; ++i) CHECK(flock((int[]){folder, pipe, gone, only_read, away}[i], LOCK_EX) == 0);
  struct flock l = {.l_type = F_WRLCK, .l_start = 2, .l_len = 2};
  CHECK(fcntl(range, F_OFD_SETLK, &l) == 0);
  send_away(pair[0], away);
  send_away(pair[0], range);
  ready_and_wait();
  snprintf(path, sizeof(path), "/proc/self/fd/%d", gone);
  CHECK(locked_for_others("folder") && locked_for_others("pipe") && locked_for_others(path) && locked_for_others("only_read"));
  CHECK(locked_for_others("away") && locked_range("away_range"));
  CHECK(close(pair[1]) == 0 && close(pair[0]) == 0);  // and with them the descriptor that was not received
  CHECK(!locked_for_others("away") && !locked_range("away_range"));
  CHECK(flock(folder, LOCK_UN) == 0 && !locked_for_others("folder"));
  return survived();
}
