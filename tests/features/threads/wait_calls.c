// System calls that wait: none returns early or with EINTR because of the snapshot.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <linux/futex.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include "feature.h"
static int done;
static int p[2], full[2], server, ev, ep, locked;
static uint32_t word;
#define WAITER(name, ...) static void* name(void* a) { __VA_ARGS__; __sync_fetch_and_add(&done, 1); return a; }
static void wait_slept(int64_t since) { int64_t d = now_ms(CLOCK_MONOTONIC) - since; CHECK(d >= 695 && d < 30000); }
WAITER(in_read, char c; CHECK(read(p[0], &c, 1) == 1))
WAITER(in_write, char b[4096] = ""; CHECK(write(full[1], b, 4096) == 4096))
WAITER(in_accept, CHECK(accept(server, NULL, NULL) >= 0))
WAITER(in_poll, struct pollfd f = {ev, POLLIN, 0}; CHECK(poll(&f, 1, -1) == 1))
WAITER(in_poll_long, struct pollfd f = {ev, POLLIN, 0}; CHECK(poll(&f, 1, 600000) == 1))
WAITER(in_ppoll, struct pollfd f = {ev, POLLIN, 0}; struct timespec t = {600, 0}; sigset_t s; sigemptyset(&s); CHECK(ppoll(&f, 1, &t, &s) == 1))
WAITER(in_select, fd_set r; FD_ZERO(&r); FD_SET(ev, &r); struct timeval t = {600, 0}; CHECK(select(ev + 1, &r, NULL, NULL, &t) == 1))
WAITER(in_pselect, fd_set r; FD_ZERO(&r); FD_SET(ev, &r); CHECK(pselect(ev + 1, &r, NULL, NULL, NULL, NULL) == 1))
WAITER(in_epoll, struct epoll_event e; CHECK(epoll_wait(ep, &e, 1, 600000) == 1))
WAITER(in_futex, CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL) == 0))
WAITER(in_futex_timed, struct timespec t = {600, 0}; CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t) == 0))
WAITER(in_flock, int fd = open("lock", O_RDWR); CHECK(flock(fd, LOCK_EX) == 0))
WAITER(in_nanosleep, int64_t s = now_ms(CLOCK_MONOTONIC); struct timespec t = {0, 700000000}; CHECK(nanosleep(&t, NULL) == 0); wait_slept(s))
WAITER(in_nanosleep_rest, int64_t s = now_ms(CLOCK_MONOTONIC); struct timespec t = {0, 700000000}; CHECK(nanosleep(&t, &t) == 0); wait_slept(s))
WAITER(in_clock_nanosleep, int64_t s = now_ms(CLOCK_MONOTONIC); struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); t.tv_sec += 1;
       CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == 0); wait_slept(s))
WAITER(in_sleep, CHECK(sleep(1) == 0))
WAITER(in_usleep, CHECK(usleep(700000) == 0))
static volatile int paused;
WAITER(in_pause, CHECK(pause() == -1 && errno == EINTR && paused == 1))
static void handler(int s) { (void)s; ++paused; }
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  socklen_t n = sizeof(a);
  server = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(server, (struct sockaddr*)&a, n) == 0 && listen(server, 3) == 0 && getsockname(server, (struct sockaddr*)&a, &n) == 0);
  CHECK(pipe(p) == 0 && pipe(full) == 0);
  ev = eventfd(0, 0), ep = epoll_create1(0), locked = open("lock", O_RDWR | O_CREAT, 0600);
  struct epoll_event e = {EPOLLIN, {.u64 = 1}};
  CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e) == 0 && flock(locked, LOCK_EX) == 0);
  fcntl(full[1], F_SETFL, O_NONBLOCK);
  static char page[4096];
  while (write(full[1], page, 4096) == 4096) {
  }
  fcntl(full[1], F_SETFL, 0);
  signal(SIGUSR2, handler);
  void* (*body[])(void*) = {in_read, in_write, in_accept, in_poll, in_poll_long, in_ppoll, in_select, in_pselect, in_epoll,
                            in_futex, in_futex_timed, in_flock, in_nanosleep, in_nanosleep_rest, in_clock_nanosleep,
                            in_sleep, in_usleep, in_pause};
  enum { kCount = sizeof(body) / sizeof(body[0]) };
  pthread_t t[kCount];
  for (int i = 0; i < kCount; ++i) t[i] = start_thread(body[i], NULL);
  sleep_ms(50);
  ready_and_wait();
  for (int i = 12; i < 17; ++i) pthread_join(t[i], NULL);
  CHECK(done == 5);
  uint64_t one = 1;
  CHECK(write(p[1], "x", 1) == 1 && read(full[0], page, 4096) == 4096 && write(ev, &one, 8) == 8);
  int c = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(c, (struct sockaddr*)&a, sizeof(a)) == 0);
  word = 1;
  CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 10) == 2);
  CHECK(flock(locked, LOCK_UN) == 0 && pthread_kill(t[17], SIGUSR2) == 0);
  for (int i = 0; i < kCount; ++i)
    if (i < 12 || i > 16) pthread_join(t[i], NULL);
  CHECK(done == kCount);
  return survived();
}
