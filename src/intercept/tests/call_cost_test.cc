// call_cost_test DRIVER: nanoseconds the interposition adds to calls that return at once, in
// generation 0 and in a restored process. Median of alternating runs; fails above the project's
// limits with room for a busy machine.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <algorithm>
#include <vector>

#include "control.h"

static double now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

template <class Call>
static double per_call(Call call) {
  constexpr int kCalls = 20000;
  double start = now_ns();
  for (int i = 0; i < kCalls; i++) call();
  return (now_ns() - start) / kCalls;
}

template <class Direct, class Ours>
static double added(Direct direct, Ours ours) {
  std::vector<double> differences;
  for (int i = 0; i < 41; i++) {
    double a = per_call(direct), b = per_call(ours);
    differences.push_back(b - a);
  }
  std::nth_element(differences.begin(), differences.begin() + 20, differences.end());
  return differences[20];
}

int main(int, char** argv) {
  auto* control = static_cast<const TestControl*>(dlsym(RTLD_DEFAULT, "gpuckpt_test_control"));
  auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(RTLD_DEFAULT, "cuInit"));
  if (!control || init(0) != CUDA_SUCCESS) return 1;
  void* driver = dlopen(
      argv[1], RTLD_NOW | RTLD_NOLOAD);  // its name does not begin with libcuda.so: not a door
  if (!driver) return 1;
  struct Both {
    const char* name;
    void *direct, *ours;
  };
  auto both = [&](const char* name) {
    return Both{name, dlsym(driver, name), dlsym(RTLD_DEFAULT, name)};
  };
  Both current = both("cuCtxGetCurrent"), query = both("cuStreamQuery"),
       attribute = both("cuFuncGetAttribute");
  Both create = both("cuStreamCreate");
  CUstream stream;
  reinterpret_cast<CUresult (*)(CUstream*, unsigned)>(create.ours)(&stream, 0);
  bool good = true;
  for (int generation = 0; generation < 2; generation++) {
    double limit = generation ? 40 : 20;
    auto report = [&](const char* name, double ns) {
      printf("generation %d %-20s +%.1f ns\n", generation, name, ns);
      good &= ns <= limit;
    };
    using Current = CUresult (*)(CUcontext*);
    using Query = CUresult (*)(CUstream);
    using Attribute = CUresult (*)(int*, CUfunction_attribute, CUfunction);
    CUcontext c;
    int n;
    report("cuCtxGetCurrent", added([&] { reinterpret_cast<Current>(current.direct)(&c); },
                                    [&] { reinterpret_cast<Current>(current.ours)(&c); }));
    report("cuStreamQuery", added([&] { reinterpret_cast<Query>(query.direct)(stream); },
                                  [&] { reinterpret_cast<Query>(query.ours)(stream); }));
    auto f = reinterpret_cast<CUfunction>(0x5000);
    report("cuFuncGetAttribute",
           added(
               [&] {
                 reinterpret_cast<Attribute>(attribute.direct)(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
               },
               [&] {
                 reinterpret_cast<Attribute>(attribute.ours)(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
               }));
    if (generation == 0) {
      // 1000 renamed streams, and the gate in a new generation.
      control->new_generation();
      for (uint64_t i = 0; i < 1000; i++) {
        control->bind_stream(reinterpret_cast<void*>(0x200000000000 + i * 4096),
                             reinterpret_cast<void*>(0x300000000000 + i * 512));
      }
      control->bind_stream(stream, stream);
      control->gate_open();
    }
  }
  return good ? 0 : 1;
}
