// NVIDIA's own checkpoint of another process, as cuda-checkpoint does it, with times:
//   checkpoint_pid PID        lock, checkpoint, restore, unlock; one JSON object
// Device memory goes to that process's host memory and back; nothing is stored.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

namespace {
double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}
struct Arguments {  // every version's are 64 bytes; zero means nothing special
  unsigned timeout_ms = 0, reserved0 = 0;
  uint64_t reserved[7] = {};
};
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: checkpoint_pid PID\n"), 2;
  int pid = atoi(argv[1]);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return fprintf(stderr, "%s\n", dlerror()), 3;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  double start = now_ms();
  int rc = init ? init(0) : 500;
  printf("{\"init_rc\": %d, \"init_ms\": %.3f", rc, now_ms() - start);
  bool initialised = rc == 0, locked = false, checkpointed = false;
  const struct {
    const char* name;
    bool* needed;
    bool* reached;
  } steps[] = {{"Lock", &initialised, &locked},
               {"Checkpoint", &locked, &checkpointed},
               {"Restore", &checkpointed, nullptr},
               {"Unlock", &locked, nullptr}};
  for (const auto& step : steps) {
    if (!*step.needed) continue;
    char symbol[64];
    snprintf(symbol, sizeof symbol, "cuCheckpointProcess%s", step.name);
    auto call = reinterpret_cast<int (*)(int, Arguments*)>(dlsym(driver, symbol));
    Arguments arguments;
    if (step.reached == &locked) arguments.timeout_ms = 10000;
    start = now_ms();
    int this_rc = call ? call(pid, &arguments) : 500;
    printf(", \"%s_rc\": %d, \"%s_ms\": %.3f", step.name, this_rc, step.name, now_ms() - start);
    fflush(stdout);
    if (step.reached) *step.reached = this_rc == 0;
    if (this_rc != 0 && rc == 0) rc = this_rc;
  }
  printf("}\n");
  return rc;
}
