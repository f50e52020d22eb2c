// signalfd: its mask, a signal that is pending for it, a thread blocked in read.
#include <sys/signalfd.h>
#include "feature.h"
static int wait_fd;
static void* reader(void* a) {
  struct signalfd_siginfo s;
  CHECK(read(wait_fd, &s, sizeof(s)) == sizeof(s) && s.ssi_signo == SIGHUP);
  return a;
}
int main(void) {
  sigset_t all, set;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  sigemptyset(&set), sigaddset(&set, SIGRTMIN + 7), sigaddset(&set, SIGTERM);
  int fd = signalfd(-1, &set, SFD_NONBLOCK);
  sigemptyset(&set), sigaddset(&set, SIGHUP);
  wait_fd = signalfd(-1, &set, SFD_CLOEXEC);
  CHECK(fd >= 0 && wait_fd >= 0 && sigqueue(getpid(), SIGRTMIN + 7, (union sigval){.sival_int = 12}) == 0);
  pthread_t t = start_thread(reader, NULL);
  sleep_ms(20);
  ready_and_wait();
  struct signalfd_siginfo s;
  CHECK(read(fd, &s, sizeof(s)) == sizeof(s) && s.ssi_signo == (unsigned)SIGRTMIN + 7 && s.ssi_int == 12);
  CHECK(read(fd, &s, sizeof(s)) == -1 && errno == EAGAIN);
  kill(getpid(), SIGTERM);
  CHECK(read(fd, &s, sizeof(s)) == sizeof(s) && s.ssi_signo == SIGTERM);
  kill(getpid(), SIGHUP);
  pthread_join(t, NULL);
  return survived();
}
