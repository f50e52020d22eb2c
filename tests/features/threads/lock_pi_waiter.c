// A thread waits in the kernel for a priority-inheriting mutex that another holds.
#include "feature.h"
static pthread_mutex_t m;
static volatile int got;
static void* body(void* a) {
  CHECK(pthread_mutex_lock(&m) == 0);
  got = 1;
  CHECK(pthread_mutex_unlock(&m) == 0);
  return a;
}
int main(void) {
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
  CHECK(pthread_mutex_init(&m, &a) == 0);
  CHECK(pthread_mutex_lock(&m) == 0);
  pthread_t t = start_thread(body, NULL);
  sleep_ms(30);
  ready_and_wait();
  CHECK(!got);
  CHECK(pthread_mutex_unlock(&m) == 0);
  pthread_join(t, NULL);
  CHECK(got);
  return survived();
}
