// Processor time and resource usage: those of the restored process begin anew, and its CPU clocks
// and timers go on from there without an error.
#include "feature.h"
static long used_us(int who) {
  struct rusage usage;
  CHECK(getrusage(who, &usage) == 0);
  return usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec;
}
// In the program, not in the kernel: what is asked of it is seldom, beside what is computed.
static void burn(long us) {
  for (const long end = used_us(RUSAGE_SELF) + us; used_us(RUSAGE_SELF) < end;)
    for (volatile int i = 0; i < 100000; ++i) continue;
}
struct sample {
  int restored;
  long own, children;
};
// With what is known of restores at this very moment.
static struct sample take(void) {
  struct sample s;
  do
    s = (struct sample){was_restored(), used_us(RUSAGE_SELF), used_us(RUSAGE_CHILDREN)};
  while (s.restored != was_restored());
  return s;
}
int main(void) {
  burn(200000);
  const pid_t child = fork();
  if (!child) {
    burn(200000);
    _exit(3);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  const struct sample before = take();
  CHECK(before.restored || (before.own >= 200000 && before.children >= 100000));
  ready_and_wait();
  const struct sample after = take();
  if (after.restored != before.restored)
    CHECK(after.own < before.own && after.children < before.children);
  else
    CHECK(after.own >= before.own && after.children >= before.children);
  struct timespec time;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
  burn(20000);
  return survived();
}
