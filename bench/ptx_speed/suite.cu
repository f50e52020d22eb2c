// How fast the simulated GPU runs programs: kernels of the kinds of PolyBench and Rodinia, through
// the runtime and the driver, beside plain C on one core (-O2). `bench/ptx_speed/suite` runs it.
// SIMGPU_THREADS says how many cores the simulated GPU has.
#include "suite.h"

#include <time.h>

#include <algorithm>
#include <cstring>

namespace suite {
namespace {

struct Row {
  double kernels, plain;
};
std::vector<Row> rows;
const char* only = nullptr;
// SUITE_CLOCK=cpu: processor time of all threads, for a machine that others use, too.
clockid_t chosen = CLOCK_MONOTONIC;

double now() {
  struct timespec t;
  clock_gettime(chosen, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__global__ void nothing(unsigned* out) {
  if (out != nullptr) out[0] = 1;
}
__global__ void little(float* x, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 0.5f + 1.0f;
}

void launches() {
  float* x;
  check(cudaMalloc(&x, 1 << 16), "cudaMalloc");
  check(cudaMemset(x, 0, 1 << 16), "cudaMemset");
  printf("\n%-34s %14s %14s\n", "microseconds per launch", "one by one", "in a row");
  const struct {
    const char* name;
    unsigned grid, block;
    bool work;
  } cases[] = {{"nothing, 1 block of 32", 1, 32, false},
               {"1 block of 256", 1, 256, true},
               {"4 blocks of 128", 4, 128, true},
               {"16 blocks of 256", 16, 256, true}};
  for (auto& c : cases) {
    auto go = [&] {
      if (c.work)
        little<<<c.grid, c.block>>>(x, c.grid * c.block);
      else
        nothing<<<c.grid, c.block>>>(nullptr);
    };
    double alone = 1e9, row = 1e9;
    for (int k = 0; k < 5; ++k) {
      double begin = now();
      for (int n = 0; n < 1000; ++n) {
        go();
        cudaDeviceSynchronize();
      }
      alone = std::min(alone, (now() - begin) * 1e3);
      begin = now();
      for (int n = 0; n < 1000; ++n) go();
      cudaDeviceSynchronize();
      row = std::min(row, (now() - begin) * 1e3);
    }
    printf("%-34s %14.2f %14.2f\n", c.name, alone, row);
  }
  cudaFree(x);
}

}  // namespace

void measure(const char* name, unsigned launches, const std::function<void()>& reset,
             const std::function<void()>& kernels, const std::function<void()>& plain,
             const std::function<double()>& difference) {
  if (only != nullptr && strcmp(only, name) != 0) return;
  double k = 1e9, p = 1e9, apart = 0;
  for (int n = 0; n < 3; ++n) {
    reset();
    double begin = now();
    kernels();
    check(cudaDeviceSynchronize(), name);
    k = std::min(k, now() - begin);
    begin = now();
    plain();
    p = std::min(p, now() - begin);
    apart = std::max(apart, difference());
  }
  rows.push_back({k, p});
  printf("%-16s %9u %12.2f %12.2f %9.1f%s\n", name, launches, k * 1e3, p * 1e3, k / p,
         apart < 1e-3 ? "" : "   DIFFERENT RESULTS");
  fflush(stdout);
}

}  // namespace suite

int main(int argc, char** argv) {
  using namespace suite;
  if (argc > 1) only = argv[1];
  const char* clock = getenv("SUITE_CLOCK");
  if (clock != nullptr && strcmp(clock, "cpu") == 0) chosen = CLOCK_PROCESS_CPUTIME_ID;
  printf("%-16s %9s %12s %12s %9s\n", "program", "launches", "ms simulated", "ms plain", "ratio");
  linear_algebra();
  factorizations();
  stencils();
  irregular();
  std::vector<double> ratios;
  for (const Row& r : rows) ratios.push_back(r.kernels / r.plain);
  std::sort(ratios.begin(), ratios.end());
  if (only == nullptr) {
    printf("%zu programs: median %.2f, worst %.1f\n", ratios.size(), ratios[ratios.size() / 2],
           ratios.back());
  }
  if (only == nullptr || strcmp(only, "launches") == 0) launches();
  return 0;
}
