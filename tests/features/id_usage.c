// Processor time and resource usage: those of the restored process begin anew, and its CPU clocks
// and timers go on from there without an error.
#include "feature.h"
static long used_us(int who) {
  struct rusage usage;
  CHECK(getrusage(who, &usage) == 0);
  return usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec;
}
static void burn(long us) {
  for (const long end = used_us(RUSAGE_SELF) + us; used_us(RUSAGE_SELF) < end;) continue;
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
  const long own = used_us(RUSAGE_SELF), children = used_us(RUSAGE_CHILDREN);
  CHECK(own >= 200000 && children >= 100000);
  ready_and_wait();
  if (access("was_restored", F_OK) == 0) {
    CHECK(used_us(RUSAGE_SELF) < own && used_us(RUSAGE_CHILDREN) < children);
  } else {
    CHECK(used_us(RUSAGE_SELF) >= own && used_us(RUSAGE_CHILDREN) >= children);
  }
  struct timespec time;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
  const long now = used_us(RUSAGE_SELF);
  burn(20000);
  CHECK(used_us(RUSAGE_SELF) >= now + 20000);
  return survived();
}
