// rseq that the program registers itself, in memory of its own, with a signature of its own, while
// glibc does without (GLIBC_TUNABLES=glibc.pthread.rseq=0). One thread has none.
#include <linux/rseq.h>
#include "feature.h"
#define SIGNATURE 0x53053053
#define OTHER_SIGNATURE 0x11223344
static struct rseq of_main __attribute__((aligned(32)));
static __thread struct rseq own __attribute__((aligned(32)));
static volatile int set, go;
static long rseq(struct rseq* r, int flags, unsigned signature) {
  return syscall(SYS_rseq, r, 32, flags, signature);
}
static void check(struct rseq* r, unsigned signature) {
  CHECK(rseq(r, 0, signature) == -1 && errno == EBUSY);
  int ok = 0;
  for (int i = 0; i < 1000 && !ok; ++i) {
    unsigned cpu = 9999;
    syscall(SYS_getcpu, &cpu, NULL, NULL);
    ok = *(volatile unsigned*)&r->cpu_id == cpu;
  }
  CHECK(ok);
}
static void* with(void* a) {
  CHECK(rseq(&own, 0, OTHER_SIGNATURE) == 0);
  check(&own, OTHER_SIGNATURE);
  __sync_fetch_and_add(&set, 1);
  while (!go) sleep_ms(2);
  check(&own, OTHER_SIGNATURE);
  return a;
}
static void* without(void* a) {
  __sync_fetch_and_add(&set, 1);
  while (!go) sleep_ms(2);
  CHECK(rseq(&own, 0, SIGNATURE) == 0 && rseq(&own, RSEQ_FLAG_UNREGISTER, SIGNATURE) == 0);
  return a;
}
int main(int argc, char** argv) {
  if (argc == 1) {
    char* again[] = {argv[0], "again", NULL};
    CHECK(setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1) == 0);
    execv("/proc/self/exe", again);
    CHECK(0);
  }
  CHECK(rseq(&of_main, 0, SIGNATURE) == 0);
  pthread_t t = start_thread(with, NULL), u = start_thread(without, NULL);
  while (set != 2) sleep_ms(1);
  check(&of_main, SIGNATURE);
  ready_and_wait();
  check(&of_main, SIGNATURE);
  go = 1;
  pthread_join(t, NULL), pthread_join(u, NULL);
  return survived();
}
