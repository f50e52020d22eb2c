// Threads begin and end all the time, joined and detached, while the snapshot is taken.
#include "feature.h"
static volatile int stop;
static long made;
// Born so: pthread_detach of a thread that ends at the same time can free the next one's memory
// (glibc bug 19951).
static pthread_attr_t detached;
static void* brief(void* a) { return a; }
static void* maker(void* a) {
  while (!stop) {
    pthread_t t = start_thread(brief, (void*)5);
    void* r;
    CHECK(pthread_join(t, &r) == 0 && r == (void*)5);
    CHECK(pthread_create(&t, &detached, brief, NULL) == 0);
    __sync_fetch_and_add(&made, 2);
  }
  return a;
}
int main(void) {
  CHECK(pthread_attr_init(&detached) == 0);
  CHECK(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
  pthread_t t[2];
  for (int i = 0; i < 2; ++i) t[i] = start_thread(maker, NULL);
  ready_and_wait();
  long before = made;
  sleep_ms(50);
  stop = 1;
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(t[i], NULL) == 0);
  CHECK(made > before);
  return survived();
}
