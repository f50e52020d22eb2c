// Threads blocked in every kind of lock: mutex, condition, rwlock, barrier, semaphore, once, join.
#include <semaphore.h>
#include "feature.h"
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, cm = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, tc = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem;
static int go, done;
static void did(void) { __sync_fetch_and_add(&done, 1); }
static void* mutex(void* a) { CHECK(!pthread_mutex_lock(&m)), did(), pthread_mutex_unlock(&m); return a; }
static void* cond(void* a) {
  pthread_mutex_lock(&cm);
  while (!go) pthread_cond_wait(&c, &cm);
  pthread_mutex_unlock(&cm);
  return did(), a;
}
static void* timed(void* a) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 600;
  pthread_mutex_lock(&cm);
  while (!go) CHECK(pthread_cond_timedwait(&tc, &cm, &end) == 0);
  pthread_mutex_unlock(&cm);
  return did(), a;
}
static void* reader(void* a) { CHECK(!pthread_rwlock_rdlock(&rw)), did(), pthread_rwlock_unlock(&rw); return a; }
static void* at_barrier(void* a) { pthread_barrier_wait(&barrier), did(); return a; }
static void* semaphore(void* a) { CHECK(!sem_wait(&sem)), did(); return a; }
static void* timed_semaphore(void* a) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 600;
  CHECK(!sem_timedwait(&sem, &end));
  return did(), a;
}
int main(void) {
  pthread_barrier_init(&barrier, NULL, 2);
  sem_init(&sem, 0, 0);
  pthread_mutex_lock(&m), pthread_rwlock_wrlock(&rw);
  void* (*body[])(void*) = {mutex, cond, timed, reader, at_barrier, semaphore, timed_semaphore};
  pthread_t t[7];
  for (int i = 0; i < 7; ++i) t[i] = start_thread(body[i], NULL);
  sleep_ms(50);
  ready_and_wait();
  sleep_ms(20);
  CHECK(done == 0);
  pthread_mutex_unlock(&m), pthread_rwlock_unlock(&rw);
  pthread_mutex_lock(&cm);
  go = 1;
  pthread_cond_broadcast(&c), pthread_cond_broadcast(&tc);
  pthread_mutex_unlock(&cm);
  pthread_barrier_wait(&barrier);
  sem_post(&sem), sem_post(&sem);
  for (int i = 0; i < 7; ++i) pthread_join(t[i], NULL);
  CHECK(done == 7);
  return survived();
}
