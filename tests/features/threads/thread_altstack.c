// Alternate signal stacks: one thread waits inside a handler on its own, another has one set.
#include "feature.h"
static char area[2][65536];
static volatile int inside, go, ran;
static int on(void* p, int i) { return (char*)p >= area[i] && (char*)p < area[i] + sizeof(area[i]); }
static void handler(int sig) {
  (void)sig;
  int here = 0;
  CHECK(on(&here, 0));
  inside = 1;
  while (!go) sleep_ms(2);
  stack_t s;
  CHECK(sigaltstack(NULL, &s) == 0 && (s.ss_flags & SS_ONSTACK));
}
static void second(int sig) {
  (void)sig;
  int here = 0;
  ran = on(&here, 1);
}
static void* body(void* a) {
  (void)a;
  stack_t s = {area[0], 0, sizeof(area[0])};
  CHECK(sigaltstack(&s, NULL) == 0);
  raise(SIGUSR2);
  return NULL;
}
int main(void) {
  struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR2, &a, NULL);
  a.sa_handler = second;
  sigaction(SIGHUP, &a, NULL);
  stack_t s = {area[1], 0, sizeof(area[1])};
  CHECK(sigaltstack(&s, NULL) == 0);
  pthread_t t = start_thread(body, NULL);
  while (!inside) sleep_ms(1);
  ready_and_wait();
  go = 1;
  pthread_join(t, NULL);
  raise(SIGHUP);
  CHECK(ran);
  return survived();
}
