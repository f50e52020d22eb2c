// A pidfd of one thread (Linux 6.9).
#include "feature.h"
static volatile pid_t number;
static volatile int go_on;
static void* other(void* unused) {
  number = (pid_t)syscall(SYS_gettid);
  while (!go_on) sleep_ms(2);
  return unused;
}
int main(void) {
  pthread_t thread = start_thread(other, NULL);
  while (!number) sleep_ms(1);
  const int fd = (int)syscall(SYS_pidfd_open, number, O_EXCL);
  if (fd < 0) absent("PIDFD_THREAD");
  ready_and_wait();
  go_on = 1;
  CHECK(pthread_join(thread, NULL) == 0);
  return survived();
}
