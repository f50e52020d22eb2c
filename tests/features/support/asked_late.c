// A thread that answers no stop for half a second, because it blocks the signal by a system call of its own, and then waits in a
// call that lets the signal in: the call does not end with EINTR.
#include <poll.h>
#include "../feature.h"
static void block(uint64_t mask) { CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8) == 0); }
static void* answer_late(void* of) {
  sigset_t none;
  sigemptyset(&none);
  while (access("go_on", F_OK) != 0) {
    const struct timespec moment = {0, 100000000};
    block(~0ull);
    sleep_ms(500);
    CHECK(ppoll(NULL, 0, &moment, &none) == 0);
    block(0);
  }
  return of;
}
int main(void) {
  pthread_t t = start_thread(answer_late, NULL);
  ready_and_wait();
  CHECK(pthread_join(t, NULL) == 0);
  return survived();
}
