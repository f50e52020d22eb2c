// A parent that is told of each stop and continuation of its children hears of those that it caused
// alone: by SIGCHLD, and by waitid.
#include "tree.h"
static volatile int told;
static void on_child(int sig, siginfo_t* info, void* context) {
  (void)sig, (void)info, (void)context;
  ++told;
}
static char state(pid_t pid) {
  char path[64], c = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* f = fopen(path, "r");
  CHECK(f && fscanf(f, "%*d (%*[^)]) %c", &c) == 1);
  fclose(f);
  return c;
}
static pid_t stopped(int by, int taken) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    if (by == SIGSTOP) raise(SIGSTOP);
    if (by == SIGTSTP) setpgid(0, 0), raise(SIGTSTP);
    for (int i = 0; access("end", F_OK) != 0; ++i) sleep_ms(2);
    _exit(70);
  }
  siginfo_t info;
  CHECK(waitid(P_PID, (id_t)pid, &info, WSTOPPED | (taken ? 0 : WNOWAIT)) == 0);
  CHECK(info.si_code == CLD_STOPPED && info.si_status == by);
  return pid;
}
// By its parent, before it has come out of fork() as like as not.
static pid_t stopped_at_birth(void) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    while (access("end", F_OK) != 0) sleep_ms(2);
    _exit(72);
  }
  siginfo_t info;
  CHECK(kill(pid, SIGSTOP) == 0);
  CHECK(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT) == 0 && info.si_status == SIGSTOP);
  return pid;
}
int main(void) {
  struct sigaction a = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
  CHECK(sigaction(SIGCHLD, &a, NULL) == 0);
  pid_t running = fork();
  if (running == 0) {
    while (access("end", F_OK) != 0) sleep_ms(2);
    _exit(71);
  }
  pid_t taken = stopped(SIGSTOP, 1), untaken = stopped(SIGTSTP, 0), young = stopped_at_birth();
  sleep_ms(20);
  const int before = told;
  ready_and_wait();
  siginfo_t info = {0};
  for (int i = 0; i < 1000 && (state(taken) != 'T' || state(untaken) != 'T' || state(young) != 'T'); ++i) sleep_ms(5);
  CHECK(state(taken) == 'T' && state(untaken) == 'T' && state(young) == 'T' && state(running) != 'T');
  sleep_ms(100);
  CHECK(told == before);
  CHECK(waitid(P_PID, (id_t)taken, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid == 0);
  CHECK(waitid(P_PID, (id_t)running, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid == 0);
  CHECK(waitid(P_PID, (id_t)untaken, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0);
  CHECK(info.si_pid == untaken && info.si_code == CLD_STOPPED && info.si_status == SIGTSTP);
  CHECK(waitid(P_PID, (id_t)young, &info, WSTOPPED | WNOHANG) == 0);
  CHECK(info.si_pid == young && info.si_code == CLD_STOPPED && info.si_status == SIGSTOP);
  CHECK(kill(young, SIGCONT) == 0);
  CHECK(kill(taken, SIGCONT) == 0 && kill(untaken, SIGCONT) == 0);
  int status;
  CHECK(waitpid(taken, &status, WCONTINUED) == taken && WIFCONTINUED(status));
  CHECK(waitpid(untaken, &status, WCONTINUED) == untaken && WIFCONTINUED(status));
  CHECK(close(open("end", O_WRONLY | O_CREAT, 0600)) == 0);
  CHECK(wait_status(taken) == 70 && wait_status(untaken) == 70 && wait_status(running) == 71 && wait_status(young) == 72);
  return survived();
}
