// The terminal of a session controls all its members, not its leader alone: a child, a grandchild, one in the background that is
// stopped by its read. One that has let it go has none.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "tree.h"
static int slave;
static int has_terminal(void) {
  int fd = open("/dev/tty", O_RDWR | O_NOCTTY);
  if (fd < 0) CHECK(errno == ENXIO);
  if (fd >= 0) close(fd);
  return fd >= 0;
}
static int keeps_it(void) { return has_terminal() ? 50 : 51; }
static int has_none(void) { return has_terminal() ? 52 : 50; }
static int child_of_its_own(void) {
  pid_t one = fork();
  if (one == 0) _exit(keeps_it());
  return has_terminal() ? wait_status(one) : 53;
}
static pid_t reader(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid) return pid;
  char c = 0;
  CHECK(setpgid(0, 0) == 0);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  _exit(read(slave, &c, 1) == 1 && c == 'b' ? 50 : 54);
}
static _Noreturn void session(const char* path, volatile int* stopped) {
  CHECK(setsid() == getpid());
  pid_t before = fork_waiting(has_none);  // forked before the session had its terminal
  slave = open(path, O_RDWR);
  CHECK(slave >= 0 && has_terminal());
  signal(SIGTTOU, SIG_IGN);
  pid_t keeps = fork_waiting(keeps_it), parent = fork_waiting(child_of_its_own), reads = reader();
  pid_t lets_go = fork();
  if (lets_go == 0) {
    CHECK(ioctl(slave, TIOCNOTTY) == 0);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(has_none());
  }
  pid_t early = fork();
  if (early == 0) {
    CHECK(close(slave) == 0);
    pid_t grandchild = fork_waiting(keeps_it);
    _exit(wait_status(grandchild));
  }
  while (getpgid(reads) != reads) sleep_ms(1);
  *stopped = 1;
  int status;
  CHECK(waitpid(reads, &status, WUNTRACED) == reads && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
  *stopped = 2;
  CHECK(tcsetpgrp(slave, reads) == 0 && kill(-reads, SIGCONT) == 0);
  if (wait_status(before) != 50 || wait_status(keeps) != 50 || wait_status(parent) != 50) _exit(55);
  if (wait_status(reads) != 50 || wait_status(lets_go) != 50 || wait_status(early) != 50) _exit(56);
  _exit(has_terminal() ? 50 : 57);
}
int main(void) {
  volatile int* stopped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && stopped != MAP_FAILED);
  alarm(50);  // rather than wait for ever for what does not come
  pid_t shell = fork();
  if (!shell) session(ptsname(master), stopped);
  while (!*stopped) sleep_ms(1);
  sleep_ms(20);
  ready_and_wait();
  while (*stopped != 2) sleep_ms(1);
  CHECK(write(master, "b\n", 2) == 2);
  CHECK(wait_status(shell) == 50);
  return survived();
}
