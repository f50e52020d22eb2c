// Alternate signal stacks with SS_AUTODISARM: one thread waits inside a handler on its own, which is disarmed until the
// handler returns; another has one set.
#include "feature.h"
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
static char area[2][65536];
static volatile int inside, go, ran;
static int on(void* p, int i) { return (char*)p >= area[i] && (char*)p < area[i] + sizeof(area[i]); }
static int is_armed(int i) {
  stack_t s;
  CHECK(sigaltstack(NULL, &s) == 0);
  return s.ss_sp == area[i] && s.ss_size == sizeof(area[i]) && (unsigned)s.ss_flags == SS_AUTODISARM;
}
static int is_disarmed(void) {
  stack_t s;
  CHECK(sigaltstack(NULL, &s) == 0);
  return s.ss_flags == SS_DISABLE;
}
static void handler(int sig) {
  (void)sig;
  int here = 0;
  CHECK(on(&here, 0) && is_disarmed());
  inside = 1;
  while (!go) sleep_ms(2);
  CHECK(is_disarmed());
}
static void second(int sig) {
  (void)sig;
  int here = 0;
  ran = on(&here, 1) && is_disarmed();
}
static void arm(int i) {
  stack_t s = {area[i], (int)SS_AUTODISARM, sizeof(area[i])};
  CHECK(sigaltstack(&s, NULL) == 0);
}
static void* body(void* a) {
  (void)a;
  arm(0);
  raise(SIGUSR2);
  CHECK(is_armed(0));
  return NULL;
}
int main(void) {
  struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR2, &a, NULL);
  a.sa_handler = second;
  sigaction(SIGHUP, &a, NULL);
  arm(1);
  pthread_t t = start_thread(body, NULL);
  while (!inside) sleep_ms(1);
  ready_and_wait();
  CHECK(is_armed(1));
  go = 1;
  pthread_join(t, NULL);
  raise(SIGHUP);
  CHECK(ran && is_armed(1));
  return survived();
}
