// team STEPS PACE_MS FLAGS [WORKERS]: a parent and its workers, joined by pipes. Each step's line depends on all that every worker
// has done before.
//   b  each worker has 16 MiB and changes a few pages a step    g  worker 1 uses a device       G  workers 1 and 2 do
//   s  each step has a child that ends at once, by _exit or by another program                   k  workers are replaced when they end
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../programs/driver.h"

enum { kMost = 8, kWords = 1 << 13, kBig = 16 << 20, kBulk = 4 << 20 };

struct Worker {
  pid_t pid;
  int to, from;
} workers[kMost];
static int count = 2;
static const char* flags = "";

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9e3779b97f4a7c15u + (a >> 29); }

static int has(char flag) { return strchr(flags, flag) != NULL; }

static void work(int number, int in, int out) {
  static uint64_t table[kWords];
  const int device = (has('g') && number == 0) || (has('G') && number < 2);
  CUdeviceptr memory = 0, bulk = 0;  // the bulk is more than a snapshot moves without a look
  if (device) {
    start_driver();
    OK(DRIVER(cuMemAlloc_v2)(&memory, sizeof table));
    OK(DRIVER(cuMemsetD8_v2)(memory, (unsigned char)number, sizeof table));
    OK(DRIVER(cuMemAlloc_v2)(&bulk, kBulk));
    OK(DRIVER(cuMemsetD8_v2)(bulk, (unsigned char)number, kBulk));
  }
  uint64_t *big = NULL, step, sum = 0;
  if (has('b')) {
    big = malloc(kBig);
    for (size_t i = 0; i < kBig / 8; ++i) big[i] = sum = mix(sum, i + (size_t)number);
  }
  while (read(in, &step, sizeof step) == sizeof step) {
    if (has('k')) sum = 0, memset(table, 0, sizeof table);
    if (device) OK(DRIVER(cuMemcpyDtoH_v2)(table, memory, sizeof table));
    for (int i = 0; i < kWords; ++i) sum = table[i] = mix(mix(table[i], sum), step);
    if (device) OK(DRIVER(cuMemcpyHtoD_v2)(memory, table, sizeof table));
    if (device) {
      const CUdeviceptr at = bulk + mix(sum, step) % (kBulk / 8) * 8;
      uint64_t word;
      OK(DRIVER(cuMemcpyDtoH_v2)(&word, at, sizeof word));
      sum = word = mix(word, sum);
      OK(DRIVER(cuMemcpyHtoD_v2)(at, &word, sizeof word));
    }
    for (int i = 0; big && i < 4; ++i) sum = mix(sum, big[mix(sum, step) % (kBig / 8)] += step);
    if (write(out, &sum, sizeof sum) != sizeof sum) break;
  }
  _exit(0);
}

static void hire(int i) {
  int down[2], up[2];
  if (pipe(down) || pipe(up)) _exit(2);
  workers[i].pid = fork();
  if (workers[i].pid == 0) {
    for (int k = 0; k < count; ++k)
      if (k != i && workers[k].to) close(workers[k].to), close(workers[k].from);
    close(down[1]), close(up[0]);
    work(i, down[0], up[1]);
  }
  close(down[0]), close(up[1]);
  workers[i].to = down[1], workers[i].from = up[0];
}

static uint64_t ask(int i, uint64_t step) {
  uint64_t answer;
  while (write(workers[i].to, &step, sizeof step) != sizeof step || read(workers[i].from, &answer, sizeof answer) != sizeof answer) {
    if (!has('k')) printf("worker %d ended\n", i), exit(3);
    waitpid(workers[i].pid, NULL, 0);
    close(workers[i].to), close(workers[i].from);
    hire(i);
  }
  return answer;
}

static int short_lived(const char* self, uint64_t step) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    if (step & 1) _exit((int)(step & 63));
    char text[16];
    snprintf(text, sizeof text, "%d", (int)(step & 63));
    execl("/proc/self/exe", self, text, (char*)NULL);
    _exit(127);
  }
  if (waitpid(child, &status, 0) != child) return -1;
  return WEXITSTATUS(status);
}

int main(int argc, char** argv) {
  if (argc == 2) return atoi(argv[1]);
  const long steps = atol(argv[1]), pace = atol(argv[2]);
  if (argc > 3) flags = argv[3];
  if (argc > 4) count = atoi(argv[4]);
  signal(SIGPIPE, SIG_IGN);
  setvbuf(stdout, NULL, _IOLBF, 1024);
  for (int i = 0; i < count; ++i) hire(i);
  uint64_t sum = 0;
  for (long step = 1; step <= steps; ++step) {
    for (int i = 0; i < count; ++i) sum = mix(sum, ask(i, (uint64_t)step));
    if (has('s')) sum = mix(sum, (uint64_t)short_lived(argv[0], (uint64_t)step));
    printf("step %ld %016lx\n", step, (unsigned long)sum);
    usleep((useconds_t)pace * 1000);
  }
  for (int i = 0; i < count; ++i) {
    int status = -1;
    close(workers[i].to);
    waitpid(workers[i].pid, &status, 0);
    printf("worker %d: %d\n", i, status);
  }
}
