// Adds up in device memory, a step every few milliseconds, and says so after each.
//   replay_subject STEPS PACE_MS same|clock
// `clock` also writes the time of day into a buffer of its own, which no two runs do alike. A file
// in the working folder is written along.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "intercept/spec/cuda_types.h"

namespace {

void* g_driver;
template <typename F>
F entry(const char* name) {
  return reinterpret_cast<F>(dlsym(g_driver, name));
}
void need(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
  exit(1);
}

// A page of a new file; its descriptor is closed, or stays.
uint64_t* map_file(const char* name, int how, bool close_it) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ftruncate(fd, 4096)) exit(1);
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, how, fd, 0);
  if (close_it) close(fd);
  return at == MAP_FAILED ? (exit(1), nullptr) : static_cast<uint64_t*>(at);
}

}  // namespace

// Named in the test: the function that allocated the buffer that differs.
extern "C" [[gnu::noinline]] CUdeviceptr allocate_for_the_clock(size_t bytes) {
  CUdeviceptr p = 0;
  need(entry<CUresult (*)(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&p, bytes), "cuMemAlloc");
  return p + 0 * bytes;  // not a tail call
}

int main(int argc, char** argv) {
  const int steps = atoi(argv[1]), pace = atoi(argv[2]);
  const bool clock = argc > 3 && !strcmp(argv[3], "clock");
  setvbuf(stdout, nullptr, _IOLBF, 1024);
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!g_driver) return 1;
  auto to_device = entry<CUresult (*)(CUdeviceptr, const void*, size_t)>("cuMemcpyHtoD_v2");
  auto to_host = entry<CUresult (*)(void*, CUdeviceptr, size_t)>("cuMemcpyDtoH_v2");
  CUcontext context;
  CUdeviceptr sums, times;
  uint64_t values[512] = {};
  need(entry<CUresult (*)(unsigned)>("cuInit")(0), "cuInit");
  need(entry<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&context, 0, 0),
       "cuCtxCreate");
  need(entry<CUresult (*)(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&sums, sizeof values), "alloc");
  times = allocate_for_the_clock(1 << 20);
  need(to_device(sums, values, sizeof values), "copy");
  FILE* file = fopen("written", "w");
  volatile uint64_t* mapped = map_file("mapped", MAP_SHARED, true);
  // Open for writing and mapped: the copy that stands for it must be as old.
  const volatile uint64_t* both = map_file("both", MAP_PRIVATE, false);
  for (int step = 1; step <= steps; ++step) {
    need(to_host(values, sums, sizeof values), "copy");
    for (uint64_t i = 0; i < 512; ++i) values[i] += i * static_cast<uint64_t>(step);
    need(to_device(sums, values, sizeof values), "copy");
    timespec now = {};
    if (clock) clock_gettime(CLOCK_REALTIME, &now);
    need(to_device(times + 4096, &now, sizeof now), "copy");
    mapped[0] += 1 + both[0];
    fprintf(file, "step %d\n", step);
    fflush(file);
    printf("step %d\n", step);
    usleep(static_cast<useconds_t>(pace) * 1000);
  }
}
