// A program that becomes a daemon: the process that was started has ended when the work begins.
//   one     daemon(3): the daemon leads its session
//   two     a second fork, so that it does not, and a child
//   exec    a second fork, then another program
//   pair    two daemons that no chain of parents joins
//   turned  the same, but the younger one has the smaller number (where that can be chosen)
#include <linux/sched.h>
#include <sys/syscall.h>
#include "../tree.h"
// The kernel gives a smaller number than ours only to root, who asks for it.
static pid_t fork_before(pid_t number) {
  for (pid_t tid = number - 1; tid > number - 100; --tid) {
    struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&tid, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &a, sizeof a);
    if (pid >= 0) return (pid_t)pid;
    if (errno != EEXIST) break;
  }
  return fork();
}
static void tell_number(void) {
  char text[32];
  int n = snprintf(text, sizeof text, "%d\n", getpid());
  int fd = open("daemon.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0 && write(fd, text, (size_t)n) == n && close(fd) == 0);
  CHECK(rename("daemon.tmp", "daemon") == 0);
}
static int work(pid_t child) {
  pid_t self[3] = {getpid(), getpgid(0), getsid(0)};
  tell_number();
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  CHECK(getpid() == self[0]);
  CHECK(getsid(0) == self[2]);
  CHECK(getpgid(0) == self[1]);
  if (child) CHECK(wait_status(child) == 8);
  return survived();
}
int main(int argc, char** argv) {
  CHECK(argc == 2);
  const char* kind = argv[1];
  pid_t first = getpid();
  if (!strcmp(kind, "work")) return work(0);
  CHECK(daemon(1, 1) == 0);
  if (!strcmp(kind, "one")) return work(0);
  if (fork()) _exit(0);
  while (getppid() == getsid(0)) sleep_ms(1);
  if (!strcmp(kind, "two")) {
    pid_t child = fork();
    if (child) return work(child);
    pid_t place[2] = {getpgid(0), getsid(0)};
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(getpgid(0) == place[0] && getsid(0) == place[1] ? 8 : 9);
  }
  const int turned = !strcmp(kind, "turned");
  if (turned || !strcmp(kind, "pair")) {
    int end[2];
    CHECK(pipe(end) == 0);
    pid_t older = getpid();
    sleep_ms(30);  // A start time is in ticks of 10 ms.
    pid_t between = fork();
    if (between) {
      CHECK(wait_status(between) == 0);
      char c;
      close(end[1]);
      return work(0) || read(end[0], &c, 1) != 0;
    }
    if (turned ? fork_before(first) : fork()) _exit(0);
    setsid();
    close(end[0]);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(getsid(0) == getpid() && kill(older, 0) == 0 ? 0 : dprintf(1, "alone\n"));
  }
  execl("/proc/self/exe", argv[0], "work", (char*)NULL);
  return 1;
}
