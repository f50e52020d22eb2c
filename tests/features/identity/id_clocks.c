// CLOCK_MONOTONIC and BOOTTIME never go back, CPU clocks neither; an absolute deadline is kept.
#include "feature.h"
static void* body(void* a) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += 1;
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t c;
  pthread_condattr_t ca;
  pthread_condattr_init(&ca), pthread_condattr_setclock(&ca, CLOCK_MONOTONIC), pthread_cond_init(&c, &ca);
  pthread_mutex_lock(&m);
  int r;
  while ((r = pthread_cond_timedwait(&c, &m, &t)) == 0) {
  }
  CHECK(r == ETIMEDOUT);
  pthread_mutex_unlock(&m);
  return a;
}
int main(void) {
  int64_t m = now_ms(CLOCK_MONOTONIC), b = now_ms(CLOCK_BOOTTIME), w = now_ms(CLOCK_MONOTONIC_RAW), r = now_ms(CLOCK_REALTIME);
  pthread_t t = start_thread(body, NULL);
  ready_and_wait();
  CHECK(now_ms(CLOCK_MONOTONIC) >= m && now_ms(CLOCK_MONOTONIC) < m + 60000);
  CHECK(now_ms(CLOCK_BOOTTIME) >= b && now_ms(CLOCK_BOOTTIME) < b + 60000);
  CHECK(now_ms(CLOCK_MONOTONIC_RAW) >= w && now_ms(CLOCK_REALTIME) >= r);
  pthread_join(t, NULL);
  return survived();
}
