#include <stdatomic.h>
#include <sched.h>
#include "feature.h"
static atomic_int step;
static void* work(void* unused) {
  CHECK(unshare(CLONE_FILES) == 0);
  for (step = 1; step < 2;) sleep_ms(2);
  return unused;
}
int main(void) {
  pthread_t t = start_thread(work, NULL);
  while (!step) sleep_ms(1);
  ready_and_wait();
  step = 2;
  CHECK(pthread_join(t, NULL) == 0);
  return survived();
}
