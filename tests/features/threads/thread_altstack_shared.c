// Twenty threads have one alternate signal stack, as Varnish gives it to its threads for the signal
// that ends them; some got it by syscall(). Each keeps what is on its own stack, and the stack that
// it was given.
#include "feature.h"
enum { kThreads = 20 };
static char area[65536];
static volatile int waiting, go, right;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static void* body(void* a) {
  const long number = (long)a;
  volatile long own[64];
  for (int i = 0; i < 64; ++i) own[i] = number * 1000 + i;
  stack_t s = {area, 0, sizeof(area)};
  CHECK(number % 3 ? sigaltstack(&s, NULL) == 0 : syscall(SYS_sigaltstack, &s, NULL) == 0);
  pthread_mutex_lock(&mutex);
  ++waiting;
  while (!go) pthread_cond_wait(&turn, &mutex);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < 64; ++i) CHECK(own[i] == number * 1000 + i);
  stack_t now;
  CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == area && now.ss_size == sizeof(area));
  __atomic_fetch_add(&right, 1, __ATOMIC_SEQ_CST);
  return NULL;
}
int main(void) {
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; ++i) threads[i] = start_thread(body, (void*)i);
  while (waiting < kThreads) sleep_ms(1);
  ready_and_wait();
  pthread_mutex_lock(&mutex);
  go = 1;
  pthread_cond_broadcast(&turn);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(right == kThreads);
  return survived();
}
