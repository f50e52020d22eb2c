// Threads that allocate, copy, launch, record, wait, create and destroy all the time, with a
// created context coming and going beside them: every result is right and nothing hangs.
#include <pthread.h>

#include <atomic>

#include "kernels.h"

static CUcontext primary;
static CUfunction fill;
static std::atomic<bool> over{false};

static void* worker(void* id) {
  auto n = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(id));
  OK(cuCtxSetCurrent(primary));
  CUstream s, t;
  CUevent e;
  OK(cuStreamCreate(&t, n % 2 != 0 ? CU_STREAM_NON_BLOCKING : 0));
  for (uint32_t round = 0; round < 60; ++round) {
    uint32_t words = 16 + (round * 37 + n * 11) % 3000, value = n << 16 | round;
    CUdeviceptr d, p;
    static thread_local uint32_t h[4096];
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, 0));
    OK(cuMemAlloc(&d, words * 4));
    OK(cuMemAllocAsync(&p, words * 4, s));
    OK(launch1(fill, (words + 63) / 64, 64, s, d, value, words));
    OK(cuMemcpyDtoDAsync(p, d, words * 4, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(cuMemcpyDtoHAsync(h, p, words * 4, t));
    OK(cuStreamSynchronize(t));
    for (uint32_t i = 0; i < words; ++i) CHECK(h[i] == value);
    OK(cuMemFreeAsync(p, t));
    OK(cuEventDestroy(e));
    OK(cuStreamDestroy(s));
    OK(cuMemFree(d));
  }
  OK(cuStreamDestroy(t));
  return nullptr;
}

static void* contexts(void*) {
  while (!over.load()) {
    CUcontext c;
    OK(cuCtxCreate(&c, nullptr, 0, 0));
    CUmodule m = load(kKernels);
    CUdeviceptr counter;
    OK(cuModuleGetGlobal(&counter, nullptr, m, "counter"));
    for (int i = 0; i < 5; ++i) OK(launch1(function(m, "count"), 1, 1, nullptr));
    uint32_t v;
    OK(cuMemcpyDtoH(&v, counter, 4));
    CHECK(v == 10);
    OK(launch1(function(m, "count"), 1, 1, nullptr));
    OK(cuCtxDestroy(c));
  }
  return nullptr;
}

int main() {
  primary = start();
  fill = function(load(kKernels), "fill");
  pthread_t t[6], c;
  CHECK(pthread_create(&c, nullptr, contexts, nullptr) == 0);
  for (uintptr_t i = 0; i < 6; ++i)
    CHECK(pthread_create(&t[i], nullptr, worker, reinterpret_cast<void*>(i)) == 0);
  for (pthread_t& x : t) pthread_join(x, nullptr);
  over.store(true);
  pthread_join(c, nullptr);
  OK(cuCtxSynchronize());
  return ok();
}
