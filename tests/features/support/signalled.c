// A timer's signal comes while the program waits in a system call: the call ends with EINTR, also
// when the signal comes while the program is stopped. signalled KIND, which is what it waits in.
// Each wait is begun with a timer of 20 ms, so that a longer stop always has one.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// Another thread has the signal when it comes just while the first one starts the snapshot, with all
// signals blocked: of four snapshots that may be one, on a busy machine two.
enum { kMostElsewhere = 2 };
enum { kLeastWaits = 4 };  // also when a wait was long, on a busy machine
enum { kMiB = 192 };  // stopped for longer than the timer runs (GPUCKPT_COPY=stop)
static int handled, pipe_[2];
static pthread_t main_thread;
static int elsewhere;
static void on_alarm(int sig) {
  (void)sig;
  ++handled;
  elsewhere += !pthread_equal(pthread_self(), main_thread);
}
static void* sleeper(void* unused) {
  for (;;) poll(NULL, 0, 100000);
  return unused;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
int main(int count, char** arguments) {
  const char* kind = count > 1 ? arguments[1] : "poll";
  const int reads = strcmp(kind, "read") == 0;
  main_thread = pthread_self();
  unsigned char* memory =
      mmap(NULL, (size_t)kMiB << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t i = 0; i < (size_t)kMiB << 20; i += 512) memory[i] = (unsigned char)(i >> 9) | 1;
  if (pipe(pipe_) != 0) return 1;
  struct sigaction a = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &a, NULL);
  pthread_t other;
  if (strcmp(kind, "threads") == 0)
    for (int i = 0; i < 3; ++i) pthread_create(&other, NULL, sleeper, NULL);
  printf("ready\n");
  fflush(stdout);
  int waits = 0, wrong = 0;
  while (access("go_on", F_OK) != 0 || (waits < kLeastWaits && elsewhere == 0)) {
    memory[(size_t)waits % (kMiB << 8) << 12] ^= 2;
    // A read that begins after the signal, on a busy machine, has the next one.
    const struct itimerval timer = {{reads, 0}, {0, 20000}};
    const int before = handled, elsewhere_before = elsewhere;
    setitimer(ITIMER_REAL, &timer, NULL);
    char byte;
    const double began = now();
    errno = 0;
    const long r = reads ? read(pipe_[0], &byte, 1) : poll(NULL, 0, 5000);
    if ((r != -1 || errno != EINTR || handled == before) && elsewhere == elsewhere_before) {
      ++wrong;
      printf("wait %d: %ld, errno %d, %.1f s, %d signals\n", waits, r, errno, now() - began,
             handled - before);
    }
    ++waits;
  }
  if (elsewhere > kMostElsewhere) ++wrong, printf("%d signals in another thread\n", elsewhere);
  if (!wrong) printf("survived\n");
  fflush(stdout);
  return wrong != 0;
}
