// Children that live for some 30 ms each share 32 MiB, which one of them or their parent copies for
// all: each adds to counters that lie all over it, and none may be lost or counted twice.
#include <sys/mman.h>
#include "tree.h"
enum { kAtOnce = 3, kMiB = 32, kCounters = kMiB << 8, kSteps = 40 };  // one in each page
static unsigned long* counters;
static unsigned long* counter(unsigned i) { return counters + (size_t)(i % kCounters) * 512; }
static void count(unsigned seed) {
  for (unsigned step = 0; step < kSteps; ++step, usleep(500 + seed % 500))
    for (unsigned i = 0; i < 100; ++i)
      __atomic_fetch_add(counter(seed * 7919 + step * 104729 + i * 7907), 1, __ATOMIC_RELAXED);
  _exit(50);
}
int main(void) {
  counters = mmap(NULL, (size_t)kMiB << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(counters != MAP_FAILED);
  for (unsigned i = 0; i < kCounters; ++i) *counter(i) = 1000 + i;
  unsigned children = 0;
  int running = 0;
  for (int said = 0; running || !said || access("go_on", F_OK) != 0;) {
    while (running < kAtOnce && access("go_on", F_OK) != 0) {
      const pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0) count(children);
      ++children, ++running;
    }
    int status;
    CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 50);
    --running;
    if (children > 6 && !said) said = 1, CHECK(write(1, "ready\n", 6) == 6);
  }
  unsigned long sum = 0;
  for (unsigned i = 0; i < kCounters; ++i) sum += *counter(i) - 1000 - i;
  CHECK(sum == (unsigned long)children * kSteps * 100);
  return survived();
}
