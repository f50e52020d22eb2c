// A message queue that tells of its next message: refused, and still told of afterwards.
#include <mqueue.h>
#include "feature.h"
static volatile int told;
static void handler(int s, siginfo_t* i, void* c) {
  (void)s, (void)c;
  if (i->si_code == SI_MESGQ && i->si_value.sival_int == 42) ++told;
}
int main(void) {
  char name[64];
  sprintf(name, "/gpuckpt-feature-notify-%d", getpid());
  struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 16};
  mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
  CHECK(q != (mqd_t)-1 && mq_unlink(name) == 0);
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_RESTART};
  a.sa_sigaction = handler;
  sigaction(SIGRTMIN + 5, &a, NULL);
  struct sigevent e = {0};
  e.sigev_notify = SIGEV_SIGNAL, e.sigev_signo = SIGRTMIN + 5, e.sigev_value.sival_int = 42;
  CHECK(mq_notify(q, &e) == 0);
  ready_and_wait();
  CHECK(told == 0 && mq_send(q, "hello", 6, 1) == 0);
  for (int i = 0; i < 1000 && !told; ++i) sleep_ms(2);
  CHECK(told == 1);
  return survived();
}
