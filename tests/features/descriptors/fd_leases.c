// Leases: for reading and for writing, with a signal of its own; of a file without a name; and one for writing of a log.
#include "feature.h"

static volatile sig_atomic_t broken;
static void on_break(int sig, siginfo_t* info, void* context) {
  (void)sig, (void)context;
  broken = info->si_fd + 1;
}

static int make(const char* name, int flags) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0 && (fd = open(name, flags)) >= 0);
  return fd;
}

int main(void) {
  const int reading = make("reading", O_RDONLY), writing = make("writing", O_RDWR), log = make("log", O_WRONLY | O_APPEND);
  const int gone = make("gone", O_RDWR);
  CHECK(unlink("gone") == 0);
  struct sigaction a = {.sa_sigaction = on_break, .sa_flags = SA_SIGINFO | SA_RESTART};
  CHECK(sigaction(SIGRTMIN + 5, &a, NULL) == 0);
  CHECK(fcntl(reading, F_SETLEASE, F_RDLCK) == 0 && fcntl(writing, F_SETLEASE, F_WRLCK) == 0);
  CHECK(fcntl(log, F_SETLEASE, F_WRLCK) == 0 && fcntl(gone, F_SETLEASE, F_WRLCK) == 0);
  for (int i = 0; i < 4; ++i) CHECK(fcntl((int[]){reading, writing, log, gone}[i], F_SETSIG, SIGRTMIN + 5) == 0);
  ready_and_wait();
  CHECK(!broken);
  CHECK(fcntl(reading, F_GETLEASE) == F_RDLCK && fcntl(writing, F_GETLEASE) == F_WRLCK);
  CHECK(fcntl(log, F_GETLEASE) == F_WRLCK && fcntl(gone, F_GETLEASE) == F_WRLCK);
  CHECK(open("writing", O_RDONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK);
  for (int i = 0; i < 1000 && !broken; ++i) sleep_ms(2);  // another thread may have taken the signal
  CHECK(broken == writing + 1);
  CHECK(fcntl(writing, F_SETLEASE, F_UNLCK) == 0);
  return survived();
}
