// SIGUSR1 that the program sends itself, in every way there is: none of it asks for a snapshot, and
// each arrives once, also after a child in its memory has changed its own action. The test counts
// the snapshots.
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "../features/feature.h"

static volatile sig_atomic_t seen;
static void handler(int number) {
  (void)number;
  ++seen;
}

static void wait_for(int count) {
  const int64_t until = now_ms(CLOCK_MONOTONIC) + 20000;
  while (seen < count && now_ms(CLOCK_MONOTONIC) < until) sleep_ms(1);
  CHECK(seen == count);
}

static void* by_thread(void* to) {
  CHECK(pthread_kill(*(pthread_t*)to, SIGUSR1) == 0);
  return NULL;
}

// In a child, of which nothing is left a moment later.
static void by_child(void (*send)(pid_t)) {
  const pid_t parent = getpid(), child = fork();
  CHECK(child >= 0);
  if (!child) {
    send(parent);
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child || errno == EINTR);
}
static void with_kill(pid_t to) { kill(to, SIGUSR1); }
static void with_queue(pid_t to) { sigqueue(to, SIGUSR1, (union sigval){7}); }
static void with_shell(pid_t to) {
  char command[64];
  snprintf(command, sizeof command, "kill -USR1 %d", to);
  execl("/bin/sh", "sh", "-c", command, NULL);
}
static void with_program(pid_t to) {
  char number[16];
  snprintf(number, sizeof number, "%d", to);
  execlp("env", "env", "kill", "-USR1", number, NULL);
}

// In a child that runs in this process's memory, and changes its own action as Python's does.
static void by_vfork(const char* parent) {
  struct sigaction standard = {.sa_handler = SIG_DFL}, was;
  volatile int changed = 0;
  const pid_t child = vfork();
  CHECK(child >= 0);
  if (!child) {
    changed = sigaction(SIGUSR1, &standard, &was) == 0 && was.sa_handler == handler &&
              sigaction(SIGUSR1, NULL, &was) == 0 && was.sa_handler == SIG_DFL;
    execlp("env", "env", "kill", "-USR1", parent, NULL);
    _exit(9);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0 && changed);
}

// The program that a child executes ignores what the child ignored; what it had a handler for has
// its default there.
static int ended_by_itself(void (*ignored_or_not)(int)) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    signal(SIGUSR1, ignored_or_not);
    execl("/nowhere", "nowhere", NULL);  // fails, and changes nothing
    struct sigaction now;
    if (sigaction(SIGUSR1, NULL, &now) != 0 || now.sa_handler != ignored_or_not) _exit(8);
    execl("/bin/sh", "sh", "-c", "kill -USR1 $$; exit 5", NULL);
    _exit(9);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

// To a child in a pid namespace of its own, from outside of it (si_pid is 0) and
// from inside.
static void to_other_namespace(void) {
  int go[2];
  CHECK(pipe(go) == 0);
  const pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
  if (child < 0) {
    CHECK(errno == EPERM);  // only root may
    return;
  }
  if (!child) {
    seen = 0;
    CHECK(write(go[1], "g", 1) == 1);
    wait_for(1);
    by_child(with_kill), wait_for(2);
    _exit(0);
  }
  char byte;
  int status;
  CHECK(read(go[0], &byte, 1) == 1 && kill(child, SIGUSR1) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  close(go[0]), close(go[1]);
}

int main() {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  setpgid(0, 0);
  raise(SIGUSR1), wait_for(1);
  kill(getpid(), SIGUSR1), wait_for(2);
  kill(0, SIGUSR1), wait_for(3);
  sigqueue(getpid(), SIGUSR1, (union sigval){3}), wait_for(4);
  pthread_t self = pthread_self();
  pthread_join(start_thread(by_thread, &self), NULL), wait_for(5);
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  struct itimerspec soon = {.it_value = {0, 1000000}};
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
  wait_for(6);
  for (int i = 0; i < 10; ++i) by_child(with_kill), wait_for(7 + i);
  by_child(with_queue), wait_for(17);
  for (int i = 0; i < 5; ++i) by_child(with_shell), wait_for(18 + i);
  for (int i = 0; i < 3; ++i) by_child(with_program), wait_for(23 + i);
  char number[16];
  snprintf(number, sizeof number, "%d", getpid());
  by_vfork(number), wait_for(26);
  CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == handler);
  int status = ended_by_itself(SIG_IGN);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
  status = ended_by_itself(handler);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
  to_other_namespace();
  // A waiting thread takes it instead of a handler.
  sigset_t set;
  sigemptyset(&set), sigaddset(&set, SIGUSR1);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
  int got = 0;
  raise(SIGUSR1);
  CHECK(sigwait(&set, &got) == 0 && got == SIGUSR1);
  CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
  // What its default is, is done.
  const pid_t child = fork();
  if (!child) {
    signal(SIGUSR1, SIG_DFL);
    raise(SIGUSR1);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
  ready_and_wait();
  CHECK(seen == 27);  // and one from outside
  return survived();
}
