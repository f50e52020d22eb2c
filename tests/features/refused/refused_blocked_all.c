// A program that blocks all signals by a system call of its own: it cannot be asked.
#include "feature.h"
int main(void) {
  uint64_t all = ~0ull, before;
  CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, 8) == 0);
  ready_and_wait();
  CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8) == 0);
  return survived();
}
