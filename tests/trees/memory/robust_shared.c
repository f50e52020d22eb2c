// Mutexes, a condition variable and a barrier in memory that processes share: a robust mutex whose
// owner died before, one whose owner dies after, waiters on all of them.
#include <sys/mman.h>
#include "tree.h"
static struct Shared {
  pthread_mutex_t dead, dying, plain;
  pthread_cond_t condition;
  pthread_barrier_t barrier;
  int turn, waiting;
} * s;
static void make_mutex(pthread_mutex_t* m, int robust) {
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
  if (robust) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
  CHECK(pthread_mutex_init(m, &a) == 0);
}
static void came(void) { __atomic_add_fetch(&s->waiting, 1, __ATOMIC_SEQ_CST); }
int main(void) {
  s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(s != MAP_FAILED);
  make_mutex(&s->dead, 1), make_mutex(&s->dying, 1), make_mutex(&s->plain, 0);
  pthread_condattr_t ca;
  pthread_condattr_init(&ca);
  pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
  CHECK(pthread_cond_init(&s->condition, &ca) == 0);
  pthread_barrierattr_t ba;
  pthread_barrierattr_init(&ba);
  pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED);
  CHECK(pthread_barrier_init(&s->barrier, &ba, 3) == 0);
  pid_t first = fork();
  if (first == 0) {
    CHECK(pthread_mutex_lock(&s->dead) == 0);
    _exit(1);
  }
  CHECK(wait_status(first) == 1);
  pid_t owner = fork();
  if (owner == 0) {
    CHECK(pthread_mutex_lock(&s->dying) == 0);
    came();
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    sleep_ms(20);
    _exit(2);
  }
  while (__atomic_load_n(&s->waiting, __ATOMIC_SEQ_CST) < 1) sleep_ms(1);
  pid_t child[4];
  for (int i = 0; i < 4; ++i)
    if ((child[i] = fork()) == 0) {
      came();
      if (i == 0) {
        CHECK(pthread_mutex_lock(&s->dying) == EOWNERDEAD);
        CHECK(pthread_mutex_consistent(&s->dying) == 0 && pthread_mutex_unlock(&s->dying) == 0);
      } else if (i == 1) {
        CHECK(pthread_mutex_lock(&s->plain) == 0);
        while (s->turn != 7) CHECK(pthread_cond_wait(&s->condition, &s->plain) == 0);
        s->turn = 8;
        CHECK(pthread_cond_broadcast(&s->condition) == 0 && pthread_mutex_unlock(&s->plain) == 0);
      } else {
        const int r = pthread_barrier_wait(&s->barrier);
        CHECK(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
      }
      _exit(30 + i);
    }
  while (__atomic_load_n(&s->waiting, __ATOMIC_SEQ_CST) < 5) sleep_ms(1);
  sleep_ms(50);
  ready_and_wait();
  CHECK(pthread_mutex_lock(&s->dead) == EOWNERDEAD && pthread_mutex_consistent(&s->dead) == 0);
  CHECK(pthread_mutex_unlock(&s->dead) == 0);
  CHECK(pthread_mutex_lock(&s->plain) == 0);
  s->turn = 7;
  CHECK(pthread_cond_broadcast(&s->condition) == 0);
  while (s->turn != 8) CHECK(pthread_cond_wait(&s->condition, &s->plain) == 0);
  CHECK(pthread_mutex_unlock(&s->plain) == 0);
  const int r = pthread_barrier_wait(&s->barrier);
  CHECK(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
  CHECK(wait_status(owner) == 2);
  for (int i = 0; i < 4; ++i) CHECK(wait_status(child[i]) == 30 + i);
  return survived();
}
