// A session at a pseudo terminal: its background job was stopped by its read, its foreground job has half a line before it, and
// every process has the master. The snapshot looks at the unread line from the background.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include "tree.h"
static int slave;
static _Noreturn void background(void) {
  char c = 0;
  setpgid(0, 0);
  sleep_ms(50);
  _exit(read(slave, &c, 1) == 1 && c == 'b' ? 50 : 51);
}
static _Noreturn void foreground(void) {
  char text[100] = "";
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  CHECK(tcsetpgrp(slave, getpid()) == 0);
  _exit(read(slave, text, 99) == 12 && strcmp(text, "hello there\n") == 0 ? 50 : 52);
}
static _Noreturn void session(int master, int* group) {
  CHECK(setsid() == getpid());
  slave = open(ptsname(master), O_RDWR);
  CHECK(slave >= 0);
  signal(SIGTTOU, SIG_IGN);
  pid_t back = fork();
  if (!back) background();
  setpgid(back, back);
  pid_t front = fork();
  if (!front) foreground();
  int status;
  CHECK(waitpid(back, &status, WUNTRACED) == back && WIFSTOPPED(status));
  *group = front;
  if (wait_status(front) != 50) _exit(53);
  CHECK(tcsetpgrp(slave, back) == 0 && kill(-back, SIGCONT) == 0);
  _exit(wait_status(back));
}
int main(void) {
  volatile int* group = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && group != MAP_FAILED);
  pid_t shell = fork();
  if (!shell) session(master, (int*)group);
  while (!*group) sleep_ms(2);
  CHECK(write(master, "hello ", 6) == 6);
  sleep_ms(50);
  ready_and_wait();
  CHECK(tcgetpgrp(master) == *group);
  CHECK(write(master, "there\n", 6) == 6);
  while (tcgetpgrp(master) == *group) sleep_ms(2);
  CHECK(write(master, "b\n", 2) == 2);
  CHECK(wait_status(shell) == 50);
  return survived();
}
