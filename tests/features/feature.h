// One kernel feature per program: set it up, say ready_and_wait(), check it, return survived().
// Between the two the program is stopped, killed and restored by features_test.py, or only stopped;
// it must not be able to tell.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : failed(__FILE__, __LINE__, #condition))

__attribute__((noreturn)) static inline void failed(const char* file, int line, const char* what) {
  dprintf(1, "%s:%d: %s (errno %d, %s)\n", file, line, what, errno, strerror(errno));
  _exit(1);
}

static inline void sleep_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

// The kernel or the machine does not have what the program is about: the test is skipped.
__attribute__((noreturn)) static inline void absent(const char* what) {
  dprintf(1, "absent: %s (errno %d, %s)\n", what, errno, strerror(errno));
  _exit(77);
}

// A nice value that a program may take which was itself started by nice.
static inline int nicer_by(int steps) {
  const int nicer = getpriority(PRIO_PROCESS, 0) + steps;
  return nicer < 19 ? nicer : 19;
}

static inline int64_t now_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// Everything is set up. Returns when the driver says go on: by a file, so that no descriptor and
// no signal of the program's is needed for it.
static inline void ready_and_wait(void) {
  CHECK(write(1, "ready\n", 6) == 6);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
}

// Was the program killed and restored, rather than only stopped?
static inline int was_restored(void) { return access("was_restored", F_OK) == 0; }

static inline int survived(void) {
  CHECK(write(1, "survived\n", 9) == 9);
  return 0;
}

static inline pthread_t start_thread(void* (*body)(void*), void* argument) {
  pthread_t t;
  CHECK(pthread_create(&t, NULL, body, argument) == 0);
  return t;
}
