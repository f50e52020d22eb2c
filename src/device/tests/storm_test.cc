// Snapshots of a program that gives them no rest, against the simulated driver
// (SIMGPU_MEMORY=512M): device memory taken to the last byte, allocations made and freed by many
// threads, launches from 32 threads, a kernel that never ends, a device error that stays.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "device/tests/check.h"
#include "device/tests/kept_sink.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/real_driver.h"
#include "intercept/spec/cuda_types.h"

namespace {

using gpuckpt::real;
using kept::holds, kept::make_sink, kept::report, kept::Sink, kept::snapshot;

constexpr size_t kMiB = 1 << 20;

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 to) {
  .reg .u32 %r<2>;
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [to];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [%rd2];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%rd2], %r1;
  ret;
}
.visible .entry endless(.param .u64 flag) {
  .reg .u32 %r<2>;
  .reg .u64 %rd<3>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [flag];
  cvta.to.global.u64 %rd2, %rd1;
again:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
)";

CUcontext context;
CUfunction add, endless;

void launch(CUfunction function, CUdeviceptr argument, CUstream stream) {
  void* arguments[] = {&argument};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}

// Nothing is free: no stage, no memory for our kernel's tables; the snapshot is whole all the same.
void memory_full() {
  constexpr size_t kBytes = 40 * kMiB;
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kBytes));
  OK(cuMemsetD8_v2(p, 9, kBytes));
  OK(cuCtxSynchronize());
  std::vector<CUdeviceptr> taken;
  for (size_t bytes : {64 * kMiB, 2 * kMiB, size_t{65536}, size_t{4096}, size_t{256}})
    for (CUdeviceptr q; real().cuMemAlloc_v2(&q, bytes) == CUDA_SUCCESS;) taken.push_back(q);
  CHECK(!taken.empty());
  Sink sink = make_sink();
  if (!snapshot(&sink, 5000)) fprintf(stderr, "%s\n", report.text);
  CHECK(report.code == gpuckpt::kExitOk && report.staged_bytes == 0);
  CHECK(holds(sink, p, kBytes, 9));
  for (CUdeviceptr q : taken) OK(real().cuMemFree_v2(q));
  OK(cuMemFree_v2(p));
}

// `threads` of the program at work while snapshots are taken back to back.
template <typename Work>
int snapshots_beside(int threads, int wanted, Work work) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      OK(cuCtxSetCurrent(context));
      work(i, stop);
    });
  int good = 0;
  for (int i = 0; i < 3 * wanted && good < wanted; ++i) {
    Sink sink = make_sink();
    good += snapshot(&sink, 3000);
  }
  stop = true;
  for (std::thread& t : all) t.join();
  return good;
}

void allocation_storm() {
  int good = snapshots_beside(8, 5, [](int i, std::atomic<bool>& stop) {
    auto seed = static_cast<unsigned>(i + 1);
    while (!stop) {
      CUdeviceptr p[8];
      size_t bytes[8];
      unsigned char value[8], seen;
      for (int k = 0; k < 8; ++k) {
        bytes[k] = static_cast<size_t>(1 + rand_r(&seed) % (k == 7 ? 3000000 : 5000));
        value[k] = static_cast<unsigned char>(rand_r(&seed));
        OK(cuMemAlloc_v2(&p[k], bytes[k]));
        OK(cuMemsetD8_v2(p[k], value[k], bytes[k]));
      }
      for (int k = 0; k < 8; ++k) {
        OK(cuMemcpyDtoH_v2(&seen, p[k] + bytes[k] - 1, 1));
        CHECK(seen == value[k]);
        OK(cuMemFree_v2(p[k]));
      }
    }
  });
  CHECK(good == 5);
}

void launch_storm() {
  constexpr int kThreads = 32;
  CUdeviceptr counters;
  OK(cuMemAlloc_v2(&counters, kThreads * 4));
  OK(cuMemsetD8_v2(counters, 0, kThreads * 4));
  OK(cuCtxSynchronize());
  uint32_t launched[kThreads] = {}, counted[kThreads];
  int good = snapshots_beside(kThreads, 8, [&](int i, std::atomic<bool>& stop) {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!stop) {
      for (int k = 0; k < 4; ++k) launch(add, counters + static_cast<unsigned>(i) * 4, stream);
      launched[i] += 4;
      OK(cuStreamSynchronize(stream));
    }
    OK(cuStreamDestroy_v2(stream));
  });
  CHECK(good == 8);
  OK(cuMemcpyDtoH_v2(counted, counters, sizeof counted));
  CHECK(!memcmp(counted, launched, sizeof counted));
  OK(cuMemFree_v2(counters));
}

// Given up in time, stream and kernel named; the program goes on, and so does the next snapshot.
void endless_kernel() {
  CUstream stream;
  uint32_t* flag;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  *flag = 0;
  launch(endless, reinterpret_cast<CUdeviceptr>(flag), stream);
  Sink sink = make_sink();
  uint64_t start = kept::now_ms();
  CHECK(!snapshot(&sink, 600));
  CHECK(kept::now_ms() - start < 5000);
  char name[32];
  snprintf(name, sizeof name, "%p", static_cast<void*>(stream));
  if (!strstr(report.text, name)) fprintf(stderr, "%s: %s\n", name, report.text);
  CHECK(report.code == gpuckpt::kExitTimeout);
  CHECK(strstr(report.text, name) && strstr(report.text, "endless"));
  CHECK(!gpuckpt::gate_closed());
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(stream));
  CHECK(snapshot(&sink, 3000));
  OK(cuStreamDestroy_v2(stream));
  OK(cuMemFreeHost(flag));
}

// Last: nothing repairs a context after this.
void sticky_error() {
  launch(add, 0x10, nullptr);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  Sink sink = make_sink();
  CHECK(!snapshot(&sink, 2000));
  CHECK(report.code == gpuckpt::kExitRefused);
  if (!strstr(report.text, "CUDA_ERROR_ILLEGAL_ADDRESS")) fprintf(stderr, "%s\n", report.text);
  CHECK(strstr(report.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK(sink.pieces.empty() && !gpuckpt::gate_closed());
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);  // the program's own business, as before
}

}  // namespace

int main() {
  alarm(100);
  CUdevice device;
  CUmodule module;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&add, module, "add"));
  OK(cuModuleGetFunction(&endless, module, "endless"));
  memory_full();
  allocation_storm();
  launch_storm();
  endless_kernel();
  sticky_error();
  puts("PASS");
  fflush(stdout);
  _exit(0);
}
