// Names, CPU affinity, nice value, scheduling class and timer slack of single threads.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include "feature.h"
static volatile int go, set;
static void* body(void* a) {
  (void)a;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  struct sched_param none = {0};
  prctl(PR_SET_NAME, "a-worker");
  CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(sched_setscheduler(0, SCHED_BATCH, &none) == 0);
  const int nicer = nicer_by(7);
  CHECK(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), nicer) == 0);
  CHECK(prctl(PR_SET_TIMERSLACK, 123456) == 0);
  set = 1;
  while (!go) sleep_ms(5);
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  CHECK(strcmp(name, "a-worker") == 0);
  cpu_set_t now;
  CHECK(sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_COUNT(&now) == 1 && CPU_ISSET(0, &now));
  CHECK(sched_getscheduler(0) == SCHED_BATCH);
  CHECK(getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)) == nicer);
  CHECK(prctl(PR_GET_TIMERSLACK) == 123456);
  return NULL;
}
int main(void) {
  cpu_set_t before, after;
  CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
  int nice_before = getpriority(PRIO_PROCESS, 0);
  pthread_t t = start_thread(body, NULL);
  while (!set) sleep_ms(1);
  ready_and_wait();
  go = 1;
  pthread_join(t, NULL);
  CHECK(sched_getaffinity(0, sizeof(after), &after) == 0 && CPU_EQUAL(&before, &after));
  CHECK(getpriority(PRIO_PROCESS, 0) == nice_before);
  return survived();
}
