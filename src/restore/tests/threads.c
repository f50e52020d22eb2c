#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <semaphore.h>
enum { W = 4 };
static int steps = 60; static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static int turn, done; static unsigned long sum; static __thread unsigned long mine = 7;
static pthread_mutex_t rec;
static void* worker(void* a) {
  long id = (long)a; unsigned long h = 1469598103934665603ul + id; mine += id;
  void* live[64] = {0}; unsigned sz[64]; unsigned x = 12345 + id;
  for (int s = 0; s < steps; s++) {
    for (int k = 0; k < 3000; k++) {
      x = x * 1103515245 + 12345; int i = (x >> 8) & 63;
      if (live[i]) { for (unsigned b = 0; b < sz[i]; b += 97) h = (h ^ ((unsigned char*)live[i])[b]) * 1099511628211ul; free(live[i]); }
      sz[i] = 1 + ((x >> 3) % 9000); live[i] = malloc(sz[i]); memset(live[i], (int)(x >> 4), sz[i]);
    }
    mine = mine * 31 + h; usleep(20000);
    pthread_mutex_lock(&m); while (turn % W != id) pthread_cond_wait(&cv, &m);
    sum = sum * 31 + mine; turn++; if (id == W - 1) { printf("%d %lx\n", s, sum); fflush(stdout); } pthread_cond_broadcast(&cv); pthread_mutex_unlock(&m);
  }
  return (void*)mine;
}
static void* holder(void* a) { (void)a; pthread_mutex_lock(&rec); pthread_mutex_lock(&rec); while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) usleep(50000);
  int r = pthread_mutex_lock(&rec); r |= pthread_mutex_unlock(&rec); r |= pthread_mutex_unlock(&rec); r |= pthread_mutex_unlock(&rec); return (void*)(long)r; }
int main(int c, char** v) {
  if (c > 1) steps = atoi(v[1]);
  pthread_mutexattr_t at; pthread_mutexattr_init(&at); pthread_mutexattr_settype(&at, PTHREAD_MUTEX_RECURSIVE); pthread_mutex_init(&rec, &at);
  pthread_t t[W], h; pthread_create(&h, 0, holder, 0);
  for (long i = 0; i < W; i++) pthread_create(&t[i], 0, worker, (void*)i);
  unsigned long all = 0; for (int i = 0; i < W; i++) { void* r; pthread_join(t[i], &r); all = all * 17 + (unsigned long)r; }
  __atomic_store_n(&done, 1, __ATOMIC_RELEASE); void* r; pthread_join(h, &r);
  printf("final %lx %lx rec %ld\n", sum, all, (long)r); return 3;
}
