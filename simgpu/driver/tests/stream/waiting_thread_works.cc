// A thread that waits for a stream does the work itself when the stream's own thread gets no
// processor: here a signal holds that thread. What may not run on the caller's thread (a host
// function) waits for it, and so does a thread whose stack is too small for kernels.
#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels.h"

namespace {

// Streams' threads block every signal that libc lets them block; 33 is libc's own.
constexpr int kSignal = 33;
volatile int held, release;

void hold(int) {
  held = 1;
  while (!release) rest(0.001);
  held = 0;
}

[[gnu::naked]] void restorer() { asm("mov $15, %eax; syscall"); }

void catch_signal() {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    uint64_t mask;
  } action = {hold, 0x04000000 /* SA_RESTORER */ | 0x10000000 /* SA_RESTART */, restorer, 0};
  CHECK(syscall(SYS_rt_sigaction, kSignal, &action, nullptr, 8) == 0);
}

// The only thread of a stream in this process.
pid_t thread_of_stream() {
  pid_t found = 0;
  DIR* tasks = opendir("/proc/self/task");
  CHECK(tasks != nullptr);
  while (const dirent* e = readdir(tasks)) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE* f = fopen(path, "r");
    if (!f) continue;
    if (fgets(name, sizeof name, f) && strcmp(name, "simgpu-stream\n") == 0) {
      CHECK(found == 0);
      found = static_cast<pid_t>(atoi(e->d_name));
    }
    fclose(f);
  }
  closedir(tasks);
  return found;
}

volatile int called;
void host_function(void*) { called = 1; }

CUstream stream;
void* wait_too(void* context) {
  OK(cuCtxSetCurrent(static_cast<CUcontext>(context)));
  OK(cuStreamSynchronize(stream));
  return nullptr;
}

}  // namespace

int main() {
  CUcontext context = start();
  CUfunction fill = function(load(kKernels), "fill");
  CUdeviceptr d;
  OK(cuMemAlloc(&d, 4096));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(launch1(fill, 1, 32, stream, d, 1u, 32u));
  OK(cuStreamSynchronize(stream));
  pid_t thread;
  while ((thread = thread_of_stream()) == 0) rest(0.001);  // it has just been started
  catch_signal();
  CHECK(syscall(SYS_tgkill, getpid(), thread, kSignal) == 0);
  while (!held) rest(0.001);

  uint32_t* seen;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&seen), 4096, 0));
  CUevent before, after;
  OK(cuEventCreate(&before, 0));
  OK(cuEventCreate(&after, 0));
  OK(cuEventRecord(before, stream));
  OK(launch1(fill, 1, 32, stream, d, 2u, 32u));
  OK(cuMemcpyDtoHAsync(seen, d, 128, stream));
  OK(cuMemsetD32Async(d, 3, 16, stream));
  OK(cuMemcpyDtoHAsync(seen + 32, d, 128, stream));
  OK(cuEventRecord(after, stream));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  OK(cuStreamSynchronize(stream));
  CHECK(seen[0] == 2 && seen[31] == 2 && seen[32] == 3 && seen[47] == 3 && seen[48] == 2);
  float ms;
  OK(cuEventElapsedTime(&ms, before, after));

  // Two threads wait, and the work keeps its order.
  for (unsigned k = 0; k < 200; ++k) OK(launch1(fill, 1, 32, stream, d, k, 32 - k % 32));
  pthread_t other;
  CHECK(pthread_create(&other, nullptr, wait_too, context) == 0);
  OK(cuCtxSynchronize());
  CHECK(pthread_join(other, nullptr) == 0);
  OK(cuMemcpyDtoHAsync(seen, d, 128, stream));
  OK(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < 32; ++i) {
    unsigned last = 199;
    while (i >= 32 - last % 32) --last;
    CHECK(seen[i] == last);
  }

  pthread_attr_t little;
  pthread_attr_init(&little);
  pthread_attr_setstacksize(&little, 128 << 10);
  OK(launch1(fill, 1, 32, stream, d, 4u, 32u));
  CHECK(pthread_create(&other, &little, wait_too, context) == 0);
  rest(0.05);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  OK(cuStreamSynchronize(stream));
  CHECK(pthread_join(other, nullptr) == 0);

  OK(cuLaunchHostFunc(stream, host_function, nullptr));
  OK(launch1(fill, 1, 32, stream, d, 5u, 32u));
  pthread_t waits;
  CHECK(pthread_create(&waits, nullptr, wait_too, context) == 0);
  rest(0.05);
  CHECK(!called);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  release = 1;
  CHECK(pthread_join(waits, nullptr) == 0);
  CHECK(called);
  return ok();
}
