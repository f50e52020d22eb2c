// 200 threads, each with thread-local state and its own place to wait.
#include "feature.h"
enum { kThreads = 200 };
static __thread long mine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t go = PTHREAD_COND_INITIALIZER;
static int started, released;
static long sum;
static void* body(void* a) {
  mine = (long)a * 3;
  pthread_mutex_lock(&lock);
  ++started;
  while (!released) pthread_cond_wait(&go, &lock);
  sum += mine;
  pthread_mutex_unlock(&lock);
  return (void*)mine;
}
int main(void) {
  pthread_t t[kThreads];
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  for (long i = 0; i < kThreads; ++i) CHECK(pthread_create(&t[i], &small, body, (void*)i) == 0);
  for (int all = 0; !all; sleep_ms(1)) {
    pthread_mutex_lock(&lock);
    all = started == kThreads;
    pthread_mutex_unlock(&lock);
  }
  ready_and_wait();
  pthread_mutex_lock(&lock);
  released = 1;
  pthread_cond_broadcast(&go);
  pthread_mutex_unlock(&lock);
  for (long i = 0; i < kThreads; ++i) {
    void* r;
    CHECK(pthread_join(t[i], &r) == 0 && (long)r == i * 3);
  }
  CHECK(sum == 3L * kThreads * (kThreads - 1) / 2);
  return survived();
}
