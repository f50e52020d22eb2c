// What threads have asked of the kernel for themselves: what a memory failure does, what their processor may speculate on; and how many
// slots the futexes of the process have.
#include <sys/prctl.h>
#include "feature.h"
enum { kFutexHash = 78, kSetSlots = 1, kGetSlots = 2 };
static pthread_barrier_t set, check;
static int speculation(int what) { return prctl(PR_GET_SPECULATION_CTRL, what, 0, 0, 0); }
static void* body(void* argument) {
  const int failure = (int)(intptr_t)argument;
  CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, failure, 0, 0) == 0);
  // (Where the processor has something to switch.)
  for (int what = 0; what < 3; ++what)
    prctl(PR_SET_SPECULATION_CTRL, what, failure == PR_MCE_KILL_EARLY ? PR_SPEC_DISABLE : PR_SPEC_ENABLE, 0, 0);
  // (Root may, where it has CAP_SYS_RESOURCE.)
  prctl(PR_SET_IO_FLUSHER, failure == PR_MCE_KILL_EARLY, 0, 0, 0);
  const int flusher = prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0);
  const int before[3] = {speculation(0), speculation(1), speculation(2)};
  pthread_barrier_wait(&set);
  pthread_barrier_wait(&check);
  CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == failure);
  for (int what = 0; what < 3; ++what) CHECK(speculation(what) == before[what]);
  CHECK(prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) == flusher);
  return NULL;
}
int main(void) {
  pthread_t worker[3];
  CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_LATE, 0, 0) == 0);
  pthread_barrier_init(&set, NULL, 4), pthread_barrier_init(&check, NULL, 4);
  const int choices[3] = {PR_MCE_KILL_EARLY, PR_MCE_KILL_LATE, PR_MCE_KILL_DEFAULT};
  for (int i = 0; i < 3; ++i) worker[i] = start_thread(body, (void*)(intptr_t)choices[i]);
  pthread_barrier_wait(&set);
  prctl(kFutexHash, kSetSlots, 512, 0, 0);
  const int slots = prctl(kFutexHash, kGetSlots, 0, 0, 0);
  ready_and_wait();
  CHECK(prctl(kFutexHash, kGetSlots, 0, 0, 0) == slots);
  CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_LATE);
  pthread_barrier_wait(&check);
  for (int i = 0; i < 3; ++i) pthread_join(worker[i], NULL);
  return survived();
}
