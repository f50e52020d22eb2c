// A supervisor that starts its workers again when they crash, which they do all the time: by a
// signal, by an exit, with SIGCHLD handled. What it has counted is what the workers have done.
#include <sys/mman.h>
#include "tree.h"
enum { kWorkers = 4 };
static volatile sig_atomic_t children_ended;
static void on_child(int sig) { (void)sig, children_ended = 1; }
static int* started;
static pid_t start(int i) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid) return pid;
  __atomic_add_fetch(&started[i], 1, __ATOMIC_SEQ_CST);
  sleep_ms(5 + 3 * i);
  if (i == 0) abort();
  if (i == 1) raise(SIGKILL);
  _exit(i);
}
int main(void) {
  started = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(started != MAP_FAILED);
  struct sigaction a = {.sa_handler = on_child, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGCHLD, &a, NULL) == 0);
  pid_t worker[kWorkers];
  int begun[kWorkers] = {0}, ended[kWorkers] = {0}, said = 0;
  for (int i = 0; i < kWorkers; ++i) worker[i] = start(i), begun[i] = 1;
  sigset_t blocked, old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  CHECK(sigprocmask(SIG_BLOCK, &blocked, &old) == 0);
  for (int after = 0; after < 40;) {
    while (!children_ended) sigsuspend(&old);
    children_ended = 0;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      int i = 0;
      while (i < kWorkers && worker[i] != pid) ++i;
      CHECK(i < kWorkers);
      CHECK(i == 0   ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
            : i == 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                     : WIFEXITED(status) && WEXITSTATUS(status) == i);
      ++ended[i];
      if (access("go_on", F_OK) == 0) ++after;
      worker[i] = start(i), ++begun[i];
    }
    if (!said && ended[0] > 5) said = 1, CHECK(write(1, "ready\n", 6) == 6);
  }
  CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
  for (int i = 0; i < kWorkers; ++i) CHECK(waitpid(worker[i], NULL, 0) == worker[i]);
  for (int i = 0; i < kWorkers; ++i) CHECK(started[i] == begun[i]);
  CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
  return survived();
}
