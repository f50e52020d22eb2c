// intercept_cost DRIVER FLAG: nanoseconds a call through the preloaded library takes more than the
// same call of the driver itself, as the median of the differences of alternating runs, in
// processor time of the calling thread. Beside it the same difference between two sets of objects
// of the driver itself, its twins: what cannot be told from nothing on this machine. Launches go to
// a stream that a host function holds up, so that what is measured is the launching thread's work
// and no kernel's.
//
// DRIVER is the driver in use under a name that no door watches (a link to it). The library's side
// uses handles made before the snapshot, 1000 of them alive, so that a restored process translates
// them; the driver's side uses handles of its own. Prints a table, waits for the file FLAG (the
// script snapshots and kills the process meanwhile), and when it appears prints the table of the
// process it is then.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace {

constexpr int kRuns = 41, kLaunchRuns = 301, kLaunches = 200;
constexpr int kParameters[] = {0, 4, 20};
constexpr int kKernels = static_cast<int>(std::size(kParameters));

// One kernel for each number of parameters, all of which do nothing.
std::string kernels() {
  std::string text = ".version 7.0\n.target sm_75\n.address_size 64\n";
  for (int count : kParameters) {
    text += ".visible .entry nothing" + std::to_string(count) + "(";
    for (int i = 0; i < count; ++i)
      text += (i ? ", " : "") + std::string(".param .u64 p") + std::to_string(i);
    text += ") { ret; }\n";
  }
  return text;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s = %d\n", what, static_cast<int>(result));
  exit(1);
}
#define OK(call) check((call), #call)

// One side: its entry points and its objects.
struct Side {
  void* library;
  template <typename F>
  F get(const char* name) const {
    void* p = dlsym(library, name);
    if (!p) fprintf(stderr, "no %s\n", name), exit(1);
    return reinterpret_cast<F>(p);
  }
  decltype(&cuCtxGetCurrent) current = nullptr;
  decltype(&cuStreamQuery) query = nullptr;
  decltype(&cuFuncGetAttribute) attribute = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
  decltype(&cuMemcpyHtoDAsync) copy = nullptr;
  decltype(&cuStreamSynchronize) synchronise = nullptr;
  decltype(&cuLaunchHostFunc) host_function = nullptr;
  decltype(&cuGraphLaunch) graph_launch = nullptr;
  CUstream stream = nullptr;
  CUfunction function[kKernels] = {};
  CUgraphExec graph[kKernels] = {};  // of one launch of that kernel each
  CUdeviceptr memory = 0;

  void find() {
    current = get<decltype(current)>("cuCtxGetCurrent");
    query = get<decltype(query)>("cuStreamQuery");
    attribute = get<decltype(attribute)>("cuFuncGetAttribute");
    launch = get<decltype(launch)>("cuLaunchKernel");
    copy = get<decltype(copy)>("cuMemcpyHtoDAsync_v2");
    synchronise = get<decltype(synchronise)>("cuStreamSynchronize");
    host_function = get<decltype(host_function)>("cuLaunchHostFunc");
    graph_launch = get<decltype(graph_launch)>("cuGraphLaunch");
  }
  void make() {
    CUmodule module;
    OK(get<decltype(&cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
    OK(get<decltype(&cuModuleLoadData)>("cuModuleLoadData")(&module, kernels().c_str()));
    OK(get<decltype(&cuMemAlloc)>("cuMemAlloc_v2")(&memory, 4096));
    for (int k = 0; k < kKernels; ++k) {
      const std::string name = "nothing" + std::to_string(kParameters[k]);
      OK(get<decltype(&cuModuleGetFunction)>("cuModuleGetFunction")(&function[k], module,
                                                                    name.c_str()));
      CUgraph nodes;
      OK(get<decltype(&cuStreamBeginCapture)>("cuStreamBeginCapture_v2")(
          stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      launch_kernel(k);
      OK(get<decltype(&cuStreamEndCapture)>("cuStreamEndCapture")(stream, &nodes));
      OK(get<decltype(&cuGraphInstantiate)>("cuGraphInstantiateWithFlags")(&graph[k], nodes, 0));
    }
  }
  void launch_kernel(int k) const {
    static uint64_t value = 0;
    static void* values[20];
    for (void*& v : values) v = &value;
    OK(launch(function[k], 1, 1, 1, 32, 1, 1, 0, stream, values, nullptr));
  }
};

double now_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void wait_for_release(void* released) {
  while (!static_cast<std::atomic<bool>*>(released)->load()) usleep(50);
}

template <typename Call>
double per_call(const Side& side, int calls, bool held, const Call& call) {
  std::atomic<bool> released{!held};
  if (held) OK(side.host_function(side.stream, wait_for_release, &released));
  double start = now_ns();
  for (int i = 0; i < calls; ++i) call(side);
  double took = (now_ns() - start) / calls;
  released = true;
  side.synchronise(side.stream);
  return took;
}

struct Sides {
  Side driver, twin, ours;
};

// Each side goes first in every third round.
template <typename Call>
void compare(const char* state, const char* name, double target, int runs, int calls, bool held,
             const Sides& sides, const Call& call) {
  const Side* const all[] = {&sides.driver, &sides.twin, &sides.ours};
  std::vector<double> alone, more, noise;
  for (int i = 0; i < runs; ++i) {
    double took[3];
    for (int k = 0; k < 3; ++k) took[(i + k) % 3] = per_call(*all[(i + k) % 3], calls, held, call);
    alone.push_back(took[0]);
    noise.push_back(took[1] - took[0]);
    more.push_back(took[2] - (took[0] + took[1]) / 2);
  }
  printf("%-12s %-30s driver alone %9.1f ns   its twins %+7.1f ns   added %+8.1f ns", state, name,
         median(alone), median(noise), median(more));
  if (target > 0) printf("   target %.0f: %s", target, median(more) <= target ? "met" : "MISSED");
  puts("");
}

void compare_launches(const char* state, double target, const Sides& sides) {
  for (int k = 0; k < kKernels; ++k) {
    const std::string what = " of " + std::to_string(kParameters[k]) + " parameters";
    compare(state, ("launch" + what).c_str(), target, kLaunchRuns, kLaunches, true, sides,
            [k](const Side& s) { s.launch_kernel(k); });
    compare(state, ("graph launch" + what).c_str(), target, kLaunchRuns, kLaunches, true, sides,
            [k](const Side& s) { OK(s.graph_launch(s.graph[k], s.stream)); });
  }
}

void table(const char* state, double target, const Sides& sides) {
  char bytes[64] = {};
  for (const Side* s : {&sides.driver, &sides.twin, &sides.ours}) {  // what is measured works
    CUcontext c = nullptr;
    int n;
    OK(s->current(&c));
    OK(s->attribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, s->function[0]));
    s->launch_kernel(0);
    OK(s->copy(s->memory, bytes, sizeof bytes, s->stream));
    OK(s->synchronise(s->stream));
    OK(s->query(s->stream));
  }
  compare(state, "cuCtxGetCurrent", target, kRuns, 20000, false, sides, [](const Side& s) {
    CUcontext c;
    s.current(&c);
  });
  compare(state, "cuStreamQuery", target, kRuns, 20000, false, sides,
          [](const Side& s) { s.query(s.stream); });
  compare(state, "cuFuncGetAttribute", target, kRuns, 20000, false, sides, [](const Side& s) {
    int n;
    s.attribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, s.function[0]);
  });
  compare_launches(state, target, sides);
  compare(state, "copy of 64 bytes", 0, kLaunchRuns, kLaunches, true, sides,
          [&](const Side& s) { s.copy(s.memory, bytes, sizeof bytes, s.stream); });
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Sides sides{{nullptr}, {nullptr}, {RTLD_DEFAULT}};
  auto& [driver, twin, ours] = sides;
  CUcontext context;
  OK(ours.get<decltype(&cuInit)>("cuInit")(0));
  OK(ours.get<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  OK(ours.get<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
  driver.library = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
  if (!driver.library) fprintf(stderr, "%s is not the driver in use\n", argv[1]), exit(1);
  twin.library = driver.library;
  ours.find(), driver.find(), twin.find();
  if (reinterpret_cast<void*>(ours.query) == reinterpret_cast<void*>(driver.query))
    fprintf(stderr, "the library is not preloaded\n"), exit(1);
  std::vector<CUstream> crowd(1000);
  for (CUstream& s : crowd)
    OK(ours.get<decltype(&cuStreamCreate)>("cuStreamCreate")(&s, CU_STREAM_NON_BLOCKING));
  ours.make(), driver.make(), twin.make();
  table("generation 0", 20, sides);
  printf("ready\n");
  fflush(stdout);
  while (access(argv[2], F_OK) != 0) usleep(20000);
  CUcontext again;
  OK(ours.current(&again));    // the first call of a generation puts the context back
  driver.make(), twin.make();  // what was made behind the library's back is gone
  table("restored", 40, sides);
  printf("done\n");
}
