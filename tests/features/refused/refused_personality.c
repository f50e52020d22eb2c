// One thread has an execution domain of its own.
#include <sys/personality.h>
#include "feature.h"
static volatile int set, go_on;
static void* other(void* unused) {
  CHECK(personality(PER_LINUX | STICKY_TIMEOUTS) != -1);
  set = 1;
  while (!go_on) sleep_ms(2);
  CHECK(personality(0xffffffff) == (PER_LINUX | STICKY_TIMEOUTS));
  return unused;
}
int main(void) {
  pthread_t thread = start_thread(other, NULL);
  while (!set) sleep_ms(1);
  ready_and_wait();
  go_on = 1;
  CHECK(pthread_join(thread, NULL) == 0);
  return survived();
}
