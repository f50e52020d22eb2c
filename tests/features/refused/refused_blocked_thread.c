// A thread that blocks all signals by a system call of its own: it cannot be stopped.
#include "feature.h"
static volatile int blocked;
static void* body(void* unused) {
  uint64_t all = ~0ull;
  CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8) == 0);
  blocked = 1;
  for (;;) sleep_ms(20);
  return unused;
}
int main(void) {
  start_thread(body, NULL);
  while (!blocked) sleep_ms(1);
  ready_and_wait();
  return survived();
}
