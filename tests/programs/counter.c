// counter STEPS PACE_MS: no GPU; a state that depends on every step before, in memory and in two
// threads.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t table[1 << 14];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long asked, done;

static void* worker(void* unused) {
  pthread_mutex_lock(&mutex);
  for (;;) {
    while (done == asked) pthread_cond_wait(&changed, &mutex);
    ++done;
    for (int i = 0; i < 1 << 14; ++i)
      table[i] = (table[i] ^ table[(i * 7 + done) & 16383]) * 0x100000001b3u + (uint64_t)i;
    pthread_cond_broadcast(&changed);
  }
  return unused;
}

int main(int argc, char** argv) {
  long steps = argc > 1 ? atol(argv[1]) : 40, pace = argc > 2 ? atol(argv[2]) : 10;
  pthread_t thread;
  setvbuf(stdout, NULL, _IOLBF, 1024);
  pthread_create(&thread, NULL, worker, NULL);
  for (long step = 1; step <= steps; ++step) {
    pthread_mutex_lock(&mutex);
    asked = step;
    pthread_cond_broadcast(&changed);
    while (done != asked) pthread_cond_wait(&changed, &mutex);
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 14; ++i) sum = sum * 31 + table[i];
    pthread_mutex_unlock(&mutex);
    printf("step %ld %016lx\n", step, (unsigned long)sum);
    usleep((useconds_t)pace * 1000);
  }
  printf("done\n");
}
