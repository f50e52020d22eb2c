// Handlers, flags and masks of all signals; a handler with SA_RESETHAND and SA_NODEFER works.
#include "feature.h"
static volatile int count;
static void handler(int s, siginfo_t* i, void* c) { (void)s, (void)i, (void)c; ++count; }
int main(void) {
  struct sigaction a = {0}, now;
  a.sa_sigaction = handler;
  sigemptyset(&a.sa_mask), sigaddset(&a.sa_mask, SIGALRM);
  a.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
  for (int s = SIGRTMIN; s <= SIGRTMAX; ++s) CHECK(sigaction(s, &a, NULL) == 0);
  signal(SIGPIPE, SIG_IGN);
  a.sa_flags = SA_SIGINFO | SA_NOCLDSTOP | SA_NOCLDWAIT;
  CHECK(sigaction(SIGCHLD, &a, NULL) == 0);
  ready_and_wait();
  for (int s = SIGRTMIN; s <= SIGRTMAX; ++s) {
    CHECK(sigaction(s, NULL, &now) == 0 && now.sa_sigaction == handler);
    CHECK((now.sa_flags & ~0x04000000) == (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER));
    CHECK(sigismember(&now.sa_mask, SIGALRM) == 1 && sigismember(&now.sa_mask, SIGHUP) == 0);
  }
  CHECK(sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
  CHECK(sigaction(SIGCHLD, NULL, &now) == 0 && (now.sa_flags & SA_NOCLDWAIT));
  raise(SIGRTMIN + 1);
  CHECK(count == 1);
  CHECK(sigaction(SIGRTMIN + 1, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
  return survived();
}
