// Descriptors of processes: of a child, of a parent, of a child that has ended and was not waited
// for, of one that is gone, one shared with a child, one that an epoll set watches.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include "tree.h"
static int open_pidfd(pid_t pid, unsigned flags) {
  int fd = (int)syscall(SYS_pidfd_open, pid, flags);
  CHECK(fd >= 0);
  return fd;
}
static pid_t target(int fd) {
  char path[64], line[128];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  FILE* f = fopen(path, "r");
  int pid = 0;
  CHECK(f);
  while (fgets(line, sizeof line, f)) sscanf(line, "Pid: %d", &pid);
  fclose(f);
  return pid;
}
// How the process ended, as its descriptor tells; -1: this kernel does not.
static int told_status(int fd) {
  union { uint64_t mask; uint32_t words[16]; } info = {1 << 3 /* PIDFD_INFO_EXIT */};
  if (ioctl(fd, 0xc040ff0b /* PIDFD_GET_INFO */, &info) != 0 || !(info.mask & 1 << 3)) return -1;
  return (int)info.words[15];
}
static int is_ready(int fd, int ms) {
  struct pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, ms) == 1 && (p.revents & POLLIN);
}
int main(void) {
  pid_t self = getpid();
  pid_t quiet = fork();
  if (quiet == 0) {
    while (1) pause();
  }
  pid_t ended = fork();
  if (ended == 0) _exit(31);
  pid_t gone = fork();
  if (gone == 0) _exit(7);
  pid_t killed = fork();
  if (killed == 0) {
    while (1) pause();
  }
  int of_quiet = open_pidfd(quiet, O_NONBLOCK), of_ended = open_pidfd(ended, 0);
  int of_gone = open_pidfd(gone, 0), again = dup(of_quiet), set = epoll_create1(0);
  int of_killed = open_pidfd(killed, 0), status;
  CHECK(kill(killed, SIGTERM) == 0 && waitpid(killed, &status, 0) == killed && WTERMSIG(status) == SIGTERM);
  CHECK(wait_status(gone) == 7 && is_ready(of_ended, 5000));
  // From Linux 6.15 on.
  const int before = told_status(of_gone), before_killed = told_status(of_killed);
  CHECK(before == -1 || (WEXITSTATUS(before) == 7 && WTERMSIG(before_killed) == SIGTERM));
  struct epoll_event e = {EPOLLIN, {.u32 = 5}};
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, of_quiet, &e) == 0);
  pid_t looker = fork();
  if (looker == 0) {
    int of_parent = open_pidfd(self, 0);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    // The parent's descriptor of its brother, and its own of the parent.
    CHECK(target(of_quiet) == quiet && target(of_parent) == self && !is_ready(of_parent, 0));
    CHECK(syscall(SYS_pidfd_send_signal, of_parent, 0, NULL, 0) == 0);
    CHECK(is_ready(of_quiet, 20000));
    _exit(3);
  }
  sleep_ms(20);
  ready_and_wait();
  CHECK(target(of_quiet) == quiet && target(again) == quiet && target(of_ended) == ended);
  CHECK(told_status(of_gone) == before && told_status(of_killed) == before_killed);
  CHECK((fcntl(of_quiet, F_GETFL) & O_NONBLOCK) && !(fcntl(of_ended, F_GETFL) & O_NONBLOCK));
  CHECK(target(of_gone) == -1 && is_ready(of_gone, 0) && is_ready(of_ended, 0));
  CHECK(!is_ready(of_quiet, 0) && epoll_wait(set, &e, 1, 0) == 0);
  siginfo_t info;
  CHECK(waitid(P_PIDFD, (id_t)of_quiet, &info, WEXITED) == -1 && errno == EAGAIN);
  CHECK(waitid(P_PIDFD, (id_t)of_ended, &info, WEXITED) == 0 && info.si_status == 31);
  CHECK(syscall(SYS_pidfd_send_signal, of_quiet, SIGKILL, NULL, 0) == 0);
  // What the set watches is not gone with the process that has it as well.
  CHECK(wait_status(looker) == 3 && is_ready(again, 20000));
  CHECK(epoll_wait(set, &e, 1, 20000) == 1 && e.data.u32 == 5);
  CHECK(waitid(P_PIDFD, (id_t)of_quiet, &info, WEXITED) == 0 && info.si_status == SIGKILL);
  return survived();
}
