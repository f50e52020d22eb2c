// pthread_cancel, pthread_kill, pthread_setname_np and setgid's broadcast reach old threads.
#include "feature.h"
static volatile int cleaned, hit;
static void clean(void* a) { cleaned = 1 + !a; }
static void handler(int s) { hit = s; }
static void* body(void* a) {
  pthread_cleanup_push(clean, a);
  for (;;) pause();
  pthread_cleanup_pop(0);
  return NULL;
}
int main(void) {
  signal(SIGUSR2, handler);
  pthread_t t = start_thread(body, (void*)1);
  sleep_ms(20);
  ready_and_wait();
  CHECK(pthread_kill(t, SIGUSR2) == 0);
  for (int i = 0; i < 1000 && !hit; ++i) sleep_ms(1);
  CHECK(hit == SIGUSR2);
  CHECK(pthread_setname_np(t, "renamed") == 0);
  char name[16];
  CHECK(pthread_getname_np(t, name, 16) == 0 && strcmp(name, "renamed") == 0);
  CHECK(setgid(getgid()) == 0);
  CHECK(pthread_cancel(t) == 0);
  void* r;
  CHECK(pthread_join(t, &r) == 0 && r == PTHREAD_CANCELED && cleaned == 1);
  return survived();
}
