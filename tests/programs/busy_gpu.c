// busy_gpu STEPS [PACE_MS [THREADS]]: threads that allocate, set, copy and free all the time, each on a stream of its own, with a timer
// signal all the while. Each step's line depends on what every thread has done; the handler counts in memory of its own.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "driver.h"

enum { kMost = 64, kLive = 8 };

static int threads = 32;
static long steps;
static pthread_barrier_t start, end;
static volatile sig_atomic_t ticks;
static CUcontext context;

typedef struct {
  uint32_t random, sum;
  CUstream stream;
  CUdeviceptr live[kLive];
  uint32_t words[kLive], value[kLive];
} Worker;
static Worker workers[kMost];

static uint32_t next(Worker* w) { return w->random = (w->random ^ w->random << 13 ^ w->random >> 7) * 2654435761u + 1; }

static void replace(Worker* w, int i) {
  if (w->live[i]) {
    uint32_t last;
    OK(DRIVER(cuMemcpyDtoH_v2)(&last, w->live[i] + (w->words[i] - 1) * 4, 4));
    if (last != w->value[i]) {
      fprintf(stderr, "%08x, not %08x\n", last, w->value[i]);
      exit(3);
    }
    w->sum = w->sum * 31 + last;
    if (i % 2)
      OK(DRIVER(cuMemFreeAsync)(w->live[i], w->stream));
    else
      OK(DRIVER(cuMemFree_v2)(w->live[i]));
  }
  w->words[i] = 1 + next(w) % (next(w) % 16 ? 3000 : 700000);
  w->value[i] = next(w);
  if (i % 2)
    OK(DRIVER(cuMemAllocAsync)(&w->live[i], w->words[i] * 4, w->stream));
  else
    OK(DRIVER(cuMemAlloc_v2)(&w->live[i], w->words[i] * 4));
  OK(DRIVER(cuMemsetD32Async)(w->live[i], w->value[i], w->words[i], w->stream));
  OK(DRIVER(cuStreamSynchronize)(w->stream));
}

static void* work(void* argument) {
  Worker* w = argument;
  OK(DRIVER(cuCtxSetCurrent)(context));
  OK(DRIVER(cuStreamCreate)(&w->stream, CU_STREAM_NON_BLOCKING));
  for (long step = 0; step < steps; ++step) {
    pthread_barrier_wait(&start);
    for (int turns = 0; turns < 3; ++turns) replace(w, (int)(next(w) % kLive));
    pthread_barrier_wait(&end);
  }
  return NULL;
}

static void tick(int signal) {
  (void)signal;
  ++ticks;
}

int main(int argc, char** argv) {
  steps = atol(argv[1]);
  const long pace = argc > 2 ? atol(argv[2]) : 0;
  if (argc > 3) threads = atoi(argv[3]);
  setvbuf(stdout, NULL, _IOLBF, 1024);
  start_driver();
  OK(DRIVER(cuCtxGetCurrent)(&context));
  pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
  pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
  pthread_t id[kMost];
  for (int i = 0; i < threads; ++i) {
    workers[i].random = (uint32_t)i * 7919 + 1;
    pthread_create(&id[i], NULL, work, &workers[i]);
  }
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 3000}, {0, 3000}}, NULL);
  for (long step = 1; step <= steps; ++step) {
    uint64_t sum = 0;
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&end);
    for (int i = 0; i < threads; ++i) sum = sum * 1000003 + workers[i].sum;
    printf("step %ld %016lx\n", step, (unsigned long)sum);
    usleep((useconds_t)pace * 1000);
  }
  for (int i = 0; i < threads; ++i) pthread_join(id[i], NULL);
  return ticks == 0;
}
