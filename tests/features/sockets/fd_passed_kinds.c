// Descriptors of every kind on their way in one message, which no process has open any more: an epoll
// set with what it watches, several that look alike, sockets with unread data of their own, the
// pidfd of a process that has ended, a socket within a socket.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include "feature.h"
enum { kKinds = 12 };
static void pass(int through, const int* fds, int count) {
  union {
    char bytes[CMSG_SPACE(kKinds * sizeof(int))];
    struct cmsghdr h;
  } control;
  struct iovec io = {"m", 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control,
                     .msg_controllen = CMSG_SPACE(count * sizeof(int))};
  control.h = (struct cmsghdr){CMSG_LEN(count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.h), fds, count * sizeof(int));
  CHECK(sendmsg(through, &m, 0) == 1);
  for (int i = 0; i < count; ++i) close(fds[i]);
}
static void receive(int through, int* fds, int count) {
  char byte;
  union {
    char bytes[CMSG_SPACE(kKinds * sizeof(int))];
    struct cmsghdr h;
  } control;
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control,
                     .msg_controllen = sizeof(control)};
  CHECK(recvmsg(through, &m, MSG_DONTWAIT) == 1);
  CHECK(CMSG_FIRSTHDR(&m) && CMSG_FIRSTHDR(&m)->cmsg_len == CMSG_LEN(count * sizeof(int)));
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), count * sizeof(int));
}
static uint64_t count_of(int fd) {
  uint64_t n = 0;
  return read(fd, &n, 8) == 8 ? n : 0;
}
int main(void) {
  int way[2], inner[2], a[2], b[2], watched = eventfd(0, EFD_NONBLOCK), set = epoll_create1(0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, inner) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, a) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, b) == 0);
  CHECK(write(a[0], "to a", 4) == 4 && write(b[0], "to b", 4) == 4 && write(a[1], "from", 4) == 4);
  struct epoll_event e = {EPOLLIN, {.u64 = 77}}, other = {EPOLLIN, {.u64 = 78}};
  int also = eventfd(0, EFD_NONBLOCK);
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, watched, &e) == 0);
  CHECK(epoll_ctl(set, EPOLL_CTL_ADD, also, &other) == 0);
  pid_t child = fork();
  if (child == 0) _exit(3);
  int gone = (int)syscall(SYS_pidfd_open, child, 0), memory = memfd_create("m", 0), status;
  CHECK(gone >= 0 && waitpid(child, &status, 0) == child && write(memory, "memory", 6) == 6);
  struct itimerspec soon = {{0, 0}, {0, 1000000}};
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
  sigset_t mask;
  sigemptyset(&mask), sigaddset(&mask, SIGUSR2);
  int lone = eventfd(5, EFD_NONBLOCK);
  pass(inner[0], &lone, 1);
  int kinds[kKinds] = {set,     eventfd(1, EFD_NONBLOCK), eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE),
                       a[1],    b[1],                     gone,
                       memory,  timer,                    signalfd(-1, &mask, SFD_NONBLOCK),
                       inner[1], also,                    eventfd(3, EFD_NONBLOCK)};
  sleep_ms(3);
  pass(way[0], kinds, kKinds);
  // A socket that is on its way in itself, so to speak.
  pass(way[1], &way[0], 1);
  ready_and_wait();
  int got[kKinds];
  receive(way[1], got, kKinds);
  uint64_t one = 1;
  CHECK(epoll_wait(got[0], &e, 1, 0) == 0);
  CHECK(write(watched, &one, 8) == 8 && epoll_wait(got[0], &e, 1, 5000) == 1 && e.data.u64 == 77);
  CHECK(count_of(watched) == 1);
  CHECK(write(got[10], &one, 8) == 8 && epoll_wait(got[0], &e, 1, 5000) == 1 && e.data.u64 == 78);
  CHECK(count_of(got[1]) == 1 && count_of(got[2]) == 1 && count_of(got[2]) == 1);
  CHECK(count_of(got[2]) == 0 && count_of(got[11]) == 3);
  char text[8];
  CHECK(read(got[3], text, 8) == 4 && !memcmp(text, "to a", 4));
  CHECK(read(got[4], text, 8) == 4 && !memcmp(text, "to b", 4));
  CHECK(read(a[0], text, 8) == 4 && !memcmp(text, "from", 4));
  CHECK(write(b[0], "more", 4) == 4 && read(got[4], text, 8) == 4 && !memcmp(text, "more", 4));
  struct pollfd p = {got[5], POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 1 && syscall(SYS_pidfd_send_signal, got[5], 0, NULL, 0) == -1);
  CHECK(errno == ESRCH && pread(got[6], text, 8, 0) == 6 && !memcmp(text, "memory", 6));
  CHECK(count_of(got[7]) == 1);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  CHECK(kill(getpid(), SIGUSR2) == 0);
  struct signalfd_siginfo info;
  CHECK(read(got[8], &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR2);
  int last;
  receive(got[9], &last, 1);
  CHECK(count_of(last) == 5);
  return survived();
}
