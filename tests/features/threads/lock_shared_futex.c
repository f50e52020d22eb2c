// Process-shared mutex and condition in shared memory that is mapped twice, held across.
#include <sys/mman.h>
#include "feature.h"
struct Shared { pthread_mutex_t m; pthread_cond_t c; int go, seen; };
static struct Shared *a, *b;
static void* body(void* x) {
  pthread_mutex_lock(&b->m);
  b->seen = 1;
  while (!b->go) pthread_cond_wait(&b->c, &b->m);
  pthread_mutex_unlock(&b->m);
  return x;
}
int main(void) {
  int fd = memfd_create("shared", 0);
  CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
  a = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  b = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(a != MAP_FAILED && b != MAP_FAILED && a != b);
  close(fd);
  pthread_mutexattr_t ma;
  pthread_condattr_t ca;
  pthread_mutexattr_init(&ma), pthread_mutexattr_setpshared(&ma, 1);
  pthread_condattr_init(&ca), pthread_condattr_setpshared(&ca, 1);
  pthread_mutex_init(&a->m, &ma), pthread_cond_init(&a->c, &ca);
  pthread_t t = start_thread(body, NULL);
  while (!*(volatile int*)&a->seen) sleep_ms(1);
  pthread_mutex_lock(&a->m);
  ready_and_wait();
  CHECK(pthread_mutex_trylock(&b->m) == EBUSY);
  a->go = 1;
  pthread_cond_signal(&a->c);
  pthread_mutex_unlock(&a->m);
  pthread_join(t, NULL);
  b->go = 7;
  CHECK(a->go == 7);
  return survived();
}
