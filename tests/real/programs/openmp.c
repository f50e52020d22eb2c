// openmp STEPS PACE_MS: parallel loops, tasks, reductions and a critical section; the result does not
// depend on the schedule.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static double field[2][512][512];
static uint64_t sums[64];

static uint64_t tree(int depth, uint64_t x) {
  if (!depth) return x * 0x9e3779b97f4a7c15u;
  uint64_t a, b;
#pragma omp task shared(a)
  a = tree(depth - 1, x * 2);
#pragma omp task shared(b)
  b = tree(depth - 1, x * 2 + 1);
#pragma omp taskwait
  return a ^ (b >> 3);
}

int main(int argc, char** argv) {
  const long steps = argc > 1 ? atol(argv[1]) : 40, pace = argc > 2 ? atol(argv[2]) : 10;
  setvbuf(stdout, NULL, _IOLBF, 1024);
  omp_set_num_threads(4);
  for (int i = 0; i < 512; ++i)
    for (int k = 0; k < 512; ++k) field[0][i][k] = (i * 7 + k * 13) % 101;
  for (long step = 1; step <= steps; ++step) {
    double(*from)[512] = field[(step + 1) & 1], (*to)[512] = field[step & 1];
#pragma omp parallel for schedule(dynamic, 8)
    for (int i = 0; i < 512; ++i)
      for (int k = 0; k < 512; ++k)
        to[i][k] = (from[i][k] * 4 + from[(i + 1) & 511][k] + from[i][(k + 1) & 511]) / 6;
    uint64_t sum = 0, found = 0;
#pragma omp parallel for reduction(+ : sum) schedule(guided)
    for (int i = 0; i < 512; ++i)
      for (int k = 0; k < 512; ++k) sum += (uint64_t)(to[i][k] * 1e9);
#pragma omp parallel
    {
#pragma omp single
      found = tree(8, (uint64_t)step);
#pragma omp critical
      sums[step & 63] += found;
    }
    printf("step %ld %016lx %016lx\n", step, (unsigned long)sum, (unsigned long)sums[step & 63]);
    usleep((useconds_t)pace * 1000);
  }
  printf("done\n");
}
