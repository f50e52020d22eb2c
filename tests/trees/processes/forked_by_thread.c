// A child that another thread than the first one forked, and that is told of this thread's end (PR_SET_PDEATHSIG): the snapshot says that
// a restored child is told of the first thread's end. One forked by the first thread is not named.
#include <sys/prctl.h>
#include "tree.h"
static volatile int told;
static void on_end(int signal) { told = signal; }
static pid_t child;
static pthread_barrier_t forked, end;
static int is_untold(void) { return told ? 1 : 0; }
static void* body(void* argument) {
  (void)argument;
  child = fork_waiting(is_untold);
  pthread_barrier_wait(&forked);
  pthread_barrier_wait(&end);
  return NULL;
}
static void ask_to_be_told(void) { prctl(PR_SET_PDEATHSIG, SIGUSR2); }
int main(void) {
  signal(SIGUSR2, on_end);
  pthread_atfork(NULL, NULL, ask_to_be_told);
  pthread_barrier_init(&forked, NULL, 2), pthread_barrier_init(&end, NULL, 2);
  const pid_t of_first = fork_waiting(is_untold);
  const pthread_t t = start_thread(body, NULL);
  pthread_barrier_wait(&forked);
  ready_and_wait();
  CHECK(wait_status(child) == 0 && wait_status(of_first) == 0);
  pthread_barrier_wait(&end);
  pthread_join(t, NULL);
  return survived();
}
