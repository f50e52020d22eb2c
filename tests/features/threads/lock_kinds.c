// Recursive, error-checking, robust and priority-inheriting mutexes held across the snapshot.
#include "feature.h"
static pthread_mutex_t m[4];
static volatile int held, go;
static void* body(void* a) {
  CHECK(pthread_mutex_lock(&m[0]) == 0 && pthread_mutex_lock(&m[0]) == 0);
  for (int i = 1; i < 4; ++i) CHECK(pthread_mutex_lock(&m[i]) == 0);
  held = 1;
  while (!go) sleep_ms(2);
  CHECK(pthread_mutex_lock(&m[0]) == 0);       // the owner again
  CHECK(pthread_mutex_lock(&m[1]) == EDEADLK);  // it knows its owner
  for (int i = 0; i < 3; ++i) CHECK(pthread_mutex_unlock(&m[0]) == 0);
  CHECK(pthread_mutex_unlock(&m[1]) == 0);
  CHECK(pthread_mutex_unlock(&m[3]) == 0);
  return a;  // dies with the robust one held
}
int main(void) {
  pthread_mutexattr_t a;
  for (int i = 0; i < 4; ++i) {
    pthread_mutexattr_init(&a);
    if (i == 0) pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    if (i == 1) pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    if (i == 2) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (i == 3) pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    CHECK(pthread_mutex_init(&m[i], &a) == 0);
  }
  pthread_t t = start_thread(body, NULL);
  while (!held) sleep_ms(1);
  ready_and_wait();
  for (int i = 0; i < 4; ++i) CHECK(pthread_mutex_trylock(&m[i]) == EBUSY);
  CHECK(pthread_mutex_unlock(&m[1]) == EPERM);
  go = 1;
  pthread_join(t, NULL);
  CHECK(pthread_mutex_lock(&m[0]) == 0 && pthread_mutex_lock(&m[1]) == 0);
  CHECK(pthread_mutex_lock(&m[2]) == EOWNERDEAD);
  CHECK(pthread_mutex_consistent(&m[2]) == 0);
  CHECK(pthread_mutex_lock(&m[3]) == 0);
  for (int i = 0; i < 4; ++i) CHECK(pthread_mutex_unlock(&m[i]) == 0);
  return survived();
}
