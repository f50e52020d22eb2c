// lend STEPS PACE_MS FLAGS [WORKERS]: a parent and its workers, each with device memory and an event that all others have open
// (cuIpcOpenMemHandle, cuIpcOpenEventHandle) and write to, each in a place of its own, at the same time. Each step's line depends on all of it.
//   l  each worker has a thread inside of fwrite(stderr), which waits until the parent reads, after the last step
//   o  a lender outside of the job: a process that has left its parent has the parent's memory open
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../programs/driver.h"

enum { kMost = 6, kPlace = 512, kSmall = kMost * kPlace * 8, kLarge = (5 << 20) + kSmall };

struct Offer {
  CUipcMemHandle small, large;
  CUipcEventHandle done;
};
static struct Offer offers[kMost];
static CUdeviceptr small[kMost], large[kMost];
static CUevent done[kMost];
static uint64_t host[kPlace];
static int processes = 3;

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9e3779b97f4a7c15u + (a >> 29); }

static void offer_own(int self) {
  start_driver();
  CUdeviceptr before;
  OK(DRIVER(cuMemAlloc_v2)(&before, 3000));  // the small one lies in the middle of something
  OK(DRIVER(cuMemAlloc_v2)(&small[self], kSmall));
  OK(DRIVER(cuMemAlloc_v2)(&large[self], kLarge));
  OK(DRIVER(cuMemsetD8_v2)(small[self], (unsigned char)self, kSmall));
  OK(DRIVER(cuMemsetD8_v2)(large[self], (unsigned char)(self + 100), kLarge));
  OK(DRIVER(cuCtxSynchronize)());
  OK(DRIVER(cuIpcGetMemHandle)(&offers[self].small, small[self]));
  OK(DRIVER(cuIpcGetMemHandle)(&offers[self].large, large[self]));
  OK(DRIVER(cuEventCreate)(&done[self], CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuIpcGetEventHandle)(&offers[self].done, done[self]));
}

// Large ones are closed and opened again all the time, by handles that may be older than the process.
static void open_others(int self, uint64_t step) {
  for (int i = 0; i < processes; ++i) {
    if (i == self) continue;
    if (!small[i]) OK(DRIVER(cuIpcOpenMemHandle_v2)(&small[i], offers[i].small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (large[i] && (step + (uint64_t)(self + i)) % 5 == 0) {
      OK(DRIVER(cuIpcCloseMemHandle)(large[i]));
      large[i] = 0;
    }
    if (done[i] && (step + (uint64_t)(self + i)) % 7 == 0) {
      OK(DRIVER(cuEventDestroy_v2)(done[i]));
      done[i] = NULL;
    }
    if (!done[i]) OK(DRIVER(cuIpcOpenEventHandle)(&done[i], offers[i].done));
    if (!large[i]) OK(DRIVER(cuIpcOpenMemHandle_v2)(&large[i], offers[i].large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
}

static uint64_t change(CUdeviceptr at, uint64_t sum, uint64_t step) {
  OK(DRIVER(cuMemcpyDtoH_v2)(host, at, sizeof host));
  for (int k = 0; k < kPlace; ++k) sum = host[k] = mix(mix(host[k], sum), step);
  OK(DRIVER(cuMemcpyHtoD_v2)(at, host, sizeof host));
  return sum;
}

static uint64_t work(int self, uint64_t step) {
  uint64_t sum = 0;
  open_others(self, step);
  OK(DRIVER(cuEventRecord)(done[self], NULL));
  for (int i = 0; i < processes; ++i) {
    OK(DRIVER(cuStreamWaitEvent)(NULL, done[i], 0));
    OK(DRIVER(cuEventSynchronize)(done[i]));
    const CUdeviceptr place = (CUdeviceptr)self * sizeof host;
    sum = change(small[i] + place, sum, step);
    sum = change(large[i] + kLarge - kSmall + place, sum, step);
  }
  return sum;
}

static void all(ssize_t done, size_t wanted) {
  if (done != (ssize_t)wanted) _exit(4);
}

enum { kComplaint = 1 << 20 };

// Holds the lock of stderr meanwhile.
static void* complain(void* a) {
  static const char text[kComplaint] = "!";
  if (fwrite(text, 1, kComplaint, stderr) != kComplaint) _exit(5);
  return a;
}

static size_t read_complaints(int from) {
  static char text[65536];
  size_t got = 0;
  for (ssize_t n; (n = read(from, text, sizeof text)) > 0;) got += (size_t)n;
  return got;
}

// `errors`: a pipe, or -1.
static void run_worker(int self, int in, int out, int errors) {
  uint64_t step;
  pthread_t thread;
  offer_own(self);
  if (errors >= 0) {
    if (dup2(errors, 2) != 2 || pthread_create(&thread, NULL, complain, NULL)) _exit(2);
    close(errors);
  }
  all(write(out, &offers[self], sizeof *offers), sizeof *offers);
  all(read(in, offers, sizeof offers), sizeof offers);
  while (read(in, &step, sizeof step) == sizeof step) {
    const uint64_t sum = work(self, step);
    all(write(out, &sum, sizeof sum), sizeof sum);
  }
  if (errors >= 0) pthread_join(thread, NULL);
  _exit(0);
}

// Opens what it is told of on descriptor 3, says so on 4, and keeps it as long as 3 is open.
static void be_stranger(void) {
  CUdeviceptr memory;
  char byte = 0;
  all(read(3, &offers[0], sizeof *offers), sizeof *offers);
  start_driver();
  OK(DRIVER(cuIpcOpenMemHandle_v2)(&memory, offers[0].small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  all(write(4, &byte, 1), 1);
  close(4);
  while (read(3, &byte, 1) > 0) {
  }
  _exit(0);
}

// An orphan that runs a program of its own and has nothing of the job's name is not of the job.
static void lend_to_stranger(void) {
  int there[2], back[2];
  char byte = 0;
  if (pipe(there) || pipe(back)) exit(2);
  pid_t child = fork();
  if (child == 0) {
    if (fork()) _exit(0);
    const int in = fcntl(there[0], F_DUPFD, 10), out = fcntl(back[1], F_DUPFD, 10);
    if (dup2(in, 3) != 3 || dup2(out, 4) != 4) _exit(2);
    for (int fd = 5; fd < 100; ++fd) close(fd);
    unsetenv("GPUCKPT_JOB_NAME");
    char* words[] = {"stranger", "0", "0", "s", NULL};
    syscall(SYS_execve, "/proc/self/exe", words, environ);  // exec of libc would name it again
    _exit(2);
  }
  waitpid(child, NULL, 0);
  close(there[0]), close(back[1]);
  offer_own(0);
  all(write(there[1], &offers[0], sizeof *offers), sizeof *offers);
  all(read(back[0], &byte, 1), 1);
  close(back[0]);
}

int main(int argc, char** argv) {
  const long steps = atol(argv[1]), pace = atol(argv[2]);
  const char* flags = argc > 3 ? argv[3] : "";
  if (strchr(flags, 's')) be_stranger();
  if (argc > 4) processes = 1 + atoi(argv[4]);
  setvbuf(stdout, NULL, _IOLBF, 1024);
  const int complaining = strchr(flags, 'l') != NULL;
  int to[kMost], from[kMost], errors[kMost];
  pid_t pid[kMost];
  const int stranger = strchr(flags, 'o') != NULL;
  if (stranger) processes = 1;
  for (int i = 1; i < processes; ++i) {
    int down[2], up[2], aside[2] = {-1, -1};
    if (pipe(down) || pipe(up) || (complaining && pipe(aside))) return 2;
    if ((pid[i] = fork()) == 0) {
      for (int k = 1; k < i; ++k) close(to[k]), close(from[k]);
      close(down[1]), close(up[0]);
      if (complaining) close(aside[0]);
      run_worker(i, down[0], up[1], aside[1]);
    }
    close(down[0]), close(up[1]);
    if (complaining) close(aside[1]);
    to[i] = down[1], from[i] = up[0], errors[i] = aside[0];
  }
  if (stranger)
    lend_to_stranger();
  else
    offer_own(0);
  for (int i = 1; i < processes; ++i) all(read(from[i], &offers[i], sizeof *offers), sizeof *offers);
  for (int i = 1; i < processes; ++i) all(write(to[i], offers, sizeof offers), sizeof offers);
  uint64_t sum = 0;
  for (uint64_t step = 1; step <= (uint64_t)steps; ++step) {
    uint64_t answer;
    for (int i = 1; i < processes; ++i) all(write(to[i], &step, sizeof step), sizeof step);
    sum = mix(sum, work(0, step));
    for (int i = 1; i < processes; ++i) {
      all(read(from[i], &answer, sizeof answer), sizeof answer);
      sum = mix(sum, answer);
    }
    printf("step %lu %016lx\n", (unsigned long)step, (unsigned long)sum);
    usleep((useconds_t)pace * 1000);
  }
  for (int i = 1; i < processes; ++i) {
    int status = -1;
    close(to[i]);
    if (complaining && read_complaints(errors[i]) != kComplaint) return 3;
    waitpid(pid[i], &status, 0);
    printf("worker %d: %d\n", i, status);
  }
}
