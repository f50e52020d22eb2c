// Zombies in process groups: leaders of their own, members of a dead one's, of a living sister's, and
// leaders of sessions. waitid by group finds each.
#include "tree.h"
static void ended(pid_t pid) {
  siginfo_t info;
  CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
}
static pid_t end_in(pid_t group, int status) {
  int gate[2];
  CHECK(pipe(gate) == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    char c;
    if (group == -2) setsid();
    close(gate[1]);
    _exit(read(gate[0], &c, 1) ? 99 : status);
  }
  CHECK(group == -2 || setpgid(pid, group) == 0);
  close(gate[0]), close(gate[1]);
  ended(pid);
  return pid;
}
static int group_of(pid_t pid) {
  char path[64];
  int group = -1;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* f = fopen(path, "r");
  CHECK(f && fscanf(f, "%*d (%*[^)]) %*c %*d %d", &group) == 1);
  fclose(f);
  return group;
}
int main(void) {
  pid_t living = fork();
  if (living == 0) {
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(0);
  }
  CHECK(setpgid(living, living) == 0);
  pid_t leader = end_in(0, 1), second = end_in(leader, 2), sister = end_in(living, 3), session = end_in(-2, 4);
  pid_t own = end_in(getpgrp(), 5);
  ready_and_wait();
  CHECK(group_of(leader) == leader && group_of(second) == leader && group_of(sister) == living);
  CHECK(group_of(session) == session && group_of(own) == getpgrp());
  int status;
  CHECK(waitpid(-living, &status, 0) > 0);
  CHECK(waitpid(-living, &status, 0) > 0 && waitpid(-living, &status, WNOHANG) == -1 && errno == ECHILD);
  CHECK(waitpid(-leader, &status, WNOHANG) > 0 && waitpid(-leader, &status, WNOHANG) > 0);
  CHECK(waitpid(-leader, &status, WNOHANG) == -1 && errno == ECHILD);
  CHECK(waitpid(-session, &status, WNOHANG) == session && WEXITSTATUS(status) == 4);
  CHECK(waitpid(0, &status, WNOHANG) == own && WEXITSTATUS(status) == 5);
  return survived();
}
