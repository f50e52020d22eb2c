// rseq stays registered: the kernel goes on writing the CPU number into glibc's area.
#include <sched.h>
#include <sys/rseq.h>
#include "feature.h"
static volatile int go;
static void check(void) {
  struct rseq* r = (struct rseq*)((char*)__builtin_thread_pointer() + __rseq_offset);
  CHECK((int)r->cpu_id >= 0);
  int ok = 0;
  for (int i = 0; i < 1000 && !ok; ++i) {
    unsigned cpu = 9999;
    syscall(SYS_getcpu, &cpu, NULL, NULL);
    ok = r->cpu_id == cpu;
  }
  CHECK(ok);
  CHECK(sched_getcpu() >= 0);
}
static void* body(void* a) {
  check();
  while (!go) sleep_ms(2);
  check();
  return a;
}
int main(void) {
  if (!__rseq_size) return ready_and_wait(), survived();
  pthread_t t = start_thread(body, NULL);
  check();
  ready_and_wait();
  check();
  go = 1;
  pthread_join(t, NULL);
  return survived();
}
