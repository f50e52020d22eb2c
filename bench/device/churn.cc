// The process that bench/device/durable.py looks at: N MiB of device memory that nothing can
// shorten, a pinned buffer, and a thread that takes steps. churn MIB; commands on standard input,
// one answer (microseconds, or as said) each.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "../../tests/programs/driver.h"

namespace {

constexpr size_t kMiB = 1 << 20, kPinned = 32 * kMiB, kPiece = 4 * kMiB;

uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000 + static_cast<uint64_t>(t.tv_nsec) / 1000;
}

CUcontext context;
CUdeviceptr memory, scratch;
CUstream stream;
char* pinned;
size_t bytes;

// Noise that differs for every round and place. All of the pinned memory gets some, so that a
// snapshot of little device memory has as much host memory.
void fill(uint64_t round) {
  auto* words = reinterpret_cast<uint64_t*>(pinned);
  uint64_t state = round * 0x9E3779B97F4A7C15ull + 1;
  for (size_t at = 0; at < bytes; at += kPinned) {
    const size_t n = std::min(kPinned, bytes - at);
    for (size_t i = 0; i < kPinned / 8; ++i) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      words[i] = state;
    }
    OK(DRIVER(cuMemcpyHtoD_v2)(memory + at, pinned, n));
  }
}

// What any drain must do: all of it to pinned memory. And what any restore must: back into new
// memory.
uint64_t copy(bool back) {
  CUdeviceptr fresh = 0;
  const uint64_t t0 = now_us();
  if (back) OK(DRIVER(cuMemAlloc_v2)(&fresh, bytes));
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t n = std::min(kPiece, bytes - at);
    char* host = pinned + at % kPinned;
    OK(back ? DRIVER(cuMemcpyHtoDAsync_v2)(fresh + at, host, n, stream)
            : DRIVER(cuMemcpyDtoHAsync_v2)(host, memory + at, n, stream));
  }
  OK(DRIVER(cuStreamSynchronize)(stream));
  const uint64_t us = now_us() - t0;
  if (back) OK(DRIVER(cuMemFree_v2)(fresh));
  return us;
}

uint64_t dump(const char* path) {
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  const uint64_t t0 = now_us();
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t n = std::min(kPiece, bytes - at);
    if (write(fd, pinned + at % kPinned, n) != static_cast<ssize_t>(n)) _exit(1);
  }
  if (fdatasync(fd) != 0) _exit(1);
  close(fd);
  return now_us() - t0;
}

std::mutex steps_lock;
std::vector<uint64_t> steps;
std::atomic<bool> stepping{false};

// Each thread multiplies and adds `n` times.
const char kKernel[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry work(.param .u64 out, .param .u32 n) {\n"
    "  .reg .pred %p; .reg .b32 %i, %n, %x, %t; .reg .b64 %a, %o;\n"
    "  ld.param.u64 %a, [out];\n  ld.param.u32 %n, [n];\n  mov.u32 %i, 0;\n"
    "  mov.u32 %t, %tid.x;\n  mov.u32 %x, %t;\n"
    "again:\n"
    "  mad.lo.u32 %x, %x, 1664525, 1013904223;\n  add.u32 %i, %i, 1;\n"
    "  setp.lt.u32 %p, %i, %n;\n  @%p bra again;\n"
    "  mul.wide.u32 %o, %t, 4;\n  add.u64 %a, %a, %o;\n  st.global.u32 [%a], %x;\n  ret;\n}\n";

// A step is a kernel and a pause, as of a program that also waits for data: one block, so that the
// simulated GPU works it on one processor.
void* step(void*) {
  CUstream own;
  CUmodule module;
  CUfunction work;
  OK(DRIVER(cuCtxSetCurrent)(context));
  OK(DRIVER(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuModuleLoadData)(&module, kKernel));
  OK(DRIVER(cuModuleGetFunction)(&work, module, "work"));
  unsigned n = 20000;
  void* parameters[] = {&scratch, &n};
  for (;; usleep(5000)) {
    if (!stepping) continue;
    const uint64_t t0 = now_us();
    OK(DRIVER(cuLaunchKernel)(work, 1, 1, 1, 64, 1, 1, 0, own, parameters, nullptr));
    OK(DRIVER(cuStreamSynchronize)(own));
    std::lock_guard guard(steps_lock);
    steps.push_back(now_us() - t0);
  }
}

uint64_t median_step() {
  std::lock_guard guard(steps_lock);
  std::sort(steps.begin(), steps.end());
  const uint64_t median = steps.empty() ? 0 : steps[steps.size() / 2];
  steps.clear();
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  bytes = static_cast<size_t>(atol(argv[1])) * kMiB;
  start_driver();
  OK(DRIVER(cuCtxGetCurrent)(&context));
  void* host;
  OK(DRIVER(cuMemAllocHost_v2)(&host, kPinned));
  pinned = static_cast<char*>(host);
  OK(DRIVER(cuMemAlloc_v2)(&memory, bytes));
  OK(DRIVER(cuMemAlloc_v2)(&scratch, 16 * kMiB));
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  uint64_t round = 1;
  fill(round);
  pthread_t thread;
  pthread_create(&thread, nullptr, step, nullptr);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  puts("ready");
  char line[4096];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    uint64_t answer = 0;
    if (!strcmp(line, "change")) {
      fill(++round);
    } else if (!strcmp(line, "out")) {
      answer = copy(false);
    } else if (!strcmp(line, "in")) {
      answer = copy(true);
    } else if (!strncmp(line, "dump ", 5)) {
      answer = dump(line + 5);
    } else if (!strcmp(line, "steps on") || !strcmp(line, "steps off")) {
      stepping = line[7] == 'n';
      (void)median_step();
    } else if (!strcmp(line, "step")) {
      answer = median_step();
    }
    printf("%llu\n", static_cast<unsigned long long>(answer));
  }
}
