// The device side's figures, each beside its baseline in the same run, as ratios: on the simulated
// GPU they say what we add, on a real one also what it costs. bench/device/run prints them all.
//
//   device_bench stall [MIB]        gate closed: what staging costs beside a plain copy of the same
//                                   bytes; and per allocation, with 10,000 of them
//   device_bench drain [MIB]        device to sink beside a plain copy to pinned memory
//   device_bench full BYTES         allocate until full: how much we give, how much the driver
//                                   gives
//   device_bench small              memory that 100,000 allocations of 1000 bytes take, beside the
//                                   driver's own
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "gpuckpt/wire.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/real_driver.h"
#include "intercept/spec/cuda_types.h"
#include "snapshot/api/device_plugin.h"

namespace {

using gpuckpt::real;

#define OK(call)                                                                    \
  do {                                                                              \
    CUresult r_ = (call);                                                           \
    if (r_ != CUDA_SUCCESS) {                                                       \
      fprintf(stderr, "line %d: %s = %d\n", __LINE__, #call, static_cast<int>(r_)); \
      _exit(1);                                                                     \
    }                                                                               \
  } while (0)

constexpr size_t kMiB = 1 << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What a run costs all threads together: says more than the clock on a machine with other work.
double cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

// A sink that only takes: the ring's copy and nothing behind it.
struct Sink : gpuckpt::CaptureSink {
  static constexpr size_t kRingBytes = 32 * (kMiB + gpuckpt::wire::kNamesAlign);
  std::vector<char> slot = std::vector<char>(kMiB);
  // Its bytes lie where those of the ring do: behind their names, which begin a page.
  char* ring = static_cast<char*>(aligned_alloc(4096, kRingBytes));
  const gpuckpt::HashKey key = {
      {3, 1, 4, 1, 5, 9, 2, 6}};  // as a store's: without one nothing is hashed
  uint32_t lent = 0;
  double last = 0, last_cpu = 0;  // when it got something: the stage is freed after that
  void note(uint64_t n) {
    bytes += n;
    last = now(), last_cpu = cpu_ms();
  }
  uint64_t bytes = 0;
  static void take(gpuckpt::CaptureSink* sink, const void* bytes, uint64_t n) {
    auto* s = static_cast<Sink*>(sink);
    auto* from = static_cast<const char*>(bytes);
    for (uint64_t at = 0; at < n; at += kMiB)
      memcpy(s->slot.data(), from + at, std::min<uint64_t>(kMiB, n - at));
    s->note(n);
  }
  Sink() {
    name_key = &key;
    data = [](CaptureSink* s, uint64_t, uint64_t, const void* b, uint64_t n) {
      take(s, b, n);
      return true;
    };
    zero = [](CaptureSink*, uint64_t, uint64_t, uint64_t) { return true; };
    blob = [](CaptureSink*, const char*, const void*, uint64_t) { return true; };
    sealed = [](CaptureSink* s, uint64_t, uint64_t, const void* b, uint64_t n, const void*) {
      take(s, b, n);
      return true;
    };
    same = [](CaptureSink*, uint64_t, uint64_t, uint64_t) { return true; };
    if (!ring) _exit(1);
    memset(ring, 1, kRingBytes);
    memory = ring;
    memory_bytes = kRingBytes;
    acquire = [](CaptureSink* s, uint64_t, uint64_t, Block* out) {
      auto* sink = static_cast<Sink*>(s);
      out->token = sink->lent++ % 32;
      out->bytes = sink->ring + out->token * kMiB + gpuckpt::wire::kNamesAlign;
      return true;
    };
    commit_block = [](CaptureSink* s, const Block&, uint64_t, uint64_t, uint64_t n, const void*,
                      uint64_t) {
      static_cast<Sink*>(s)->note(n);
      return true;
    };
  }
};

struct Figures {
  double stage_ms, hash_ms, drain_ms, drain_cpu_ms;
  uint64_t moved;
};

Figures snapshot(Sink* sink, const char* id) {
  const gpuckpt::DevicePlugin* plugin = gpuckpt::device_plugin;
  gpuckpt::DeviceReport report = {};
  Figures f = {};
  std::thread([&] {
    bool ok = plugin->freeze(1000, static_cast<uint64_t>(now() * 1e3) + 10000, &report) &&
              plugin->stage(sink, &report);
    plugin->resume();
    double start = now(), cpu = cpu_ms();
    ok = ok && plugin->drain(sink, &report);
    f.drain_ms = (sink->last - start) * 1e3;
    f.drain_cpu_ms = sink->last_cpu - cpu;
    if (!ok) {
      fprintf(stderr, "%s\n", report.text);
      _exit(1);
    }
  }).join();
  plugin->commit_attempt(id);
  sink->parent = id;
  f.stage_ms = static_cast<double>(report.stage_us) / 1e3;
  f.hash_ms = static_cast<double>(report.hash_us) / 1e3;
  f.moved = report.moved_bytes;
  return f;
}

double best_of(int times, const std::function<double()>& run) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) best = std::min(best, run());
  return best;
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void stall(size_t mib) {
  const size_t bytes = mib * kMiB;
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, bytes));
  Sink sink;
  int round = 0;
  snapshot(&sink, "warm");
  double ours = best_of(5, [&] {
    OK(cuMemsetD8_v2(memory, static_cast<unsigned char>(++round), bytes));
    OK(cuCtxSynchronize());
    Figures f = snapshot(&sink, "next");
    if (f.moved < bytes) _exit(1);
    return f.stage_ms - f.hash_ms;
  });
  // The baseline does what any staging must: memory for the copy, the copy, and waits for it.
  double plain = best_of(5, [&] {
    CUdeviceptr copy;
    double start = now();
    OK(real().cuMemAlloc_v2(&copy, bytes));
    OK(real().cuMemcpyDtoDAsync_v2(copy, memory, bytes, nullptr));
    OK(real().cuStreamSynchronize(nullptr));
    double ms = (now() - start) * 1e3;
    OK(real().cuMemFree_v2(copy));
    return ms;
  });
  printf(
      "stall, %zu MiB all dirty: %.2f ms outside the hash kernel, plain copy %.2f ms: %.2f times "
      "(target 1.3)\n",
      mib, ours, plain, ours / plain);
  OK(cuMemFree_v2(memory));

  constexpr int kAllocations = 10000;
  std::vector<CUdeviceptr> all(kAllocations);
  for (CUdeviceptr& p : all) OK(cuMemAlloc_v2(&p, 40000));
  auto one_dirty = [&] {
    OK(cuMemsetD8_v2(all[77], static_cast<unsigned char>(++round), 100));
    OK(cuCtxSynchronize());
    Figures f = snapshot(&sink, "many");
    return f.stage_ms - f.hash_ms;
  };
  snapshot(&sink, "many");
  double few = best_of(5, one_dirty);
  // What a snapshot costs however little there is (the kernel's module, above all).
  for (int i = 100; i < kAllocations; ++i) OK(cuMemFree_v2(all[static_cast<size_t>(i)]));
  snapshot(&sink, "fewer");
  double fixed = best_of(5, one_dirty);
  printf(
      "stall, %d allocations, one dirty: %.2f ms outside the hash kernel, with 100 %.2f ms: "
      "%.3f us for each (target 1)\n",
      kAllocations, few, fixed, (few - fixed) * 1e3 / (kAllocations - 100));
}

void drain(size_t mib) {
  const size_t bytes = mib * kMiB;
  CUdeviceptr memory;
  void* pinned;
  OK(cuMemAlloc_v2(&memory, bytes));
  OK(cuMemAllocHost_v2(&pinned, 32 * kMiB));  // as much as the ring
  Sink sink;
  CUstream stream;
  OK(real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  // In turns, because the machine may have other work: the ratio of each pair is what counts.
  constexpr int kPairs = 9;
  std::vector<double> ratio, rate, cpu_ratio;
  for (int pair = 0; pair < kPairs; ++pair) {
    OK(cuMemsetD8_v2(memory, static_cast<unsigned char>(pair + 1), bytes));
    OK(cuCtxSynchronize());
    Figures f = snapshot(&sink, "next");
    double start = now(), cpu = cpu_ms();
    for (size_t at = 0; at < bytes; at += 4 * kMiB) {
      char* to = static_cast<char*>(pinned) + at % (32 * kMiB);
      OK(real().cuMemcpyDtoHAsync_v2(to, memory + at, 4 * kMiB, stream));
    }
    OK(real().cuStreamSynchronize(stream));
    const double plain_ms = (now() - start) * 1e3, plain_cpu_ms = cpu_ms() - cpu;
    ratio.push_back(plain_ms / f.drain_ms);
    cpu_ratio.push_back(f.drain_cpu_ms / plain_cpu_ms);
    rate.push_back(static_cast<double>(bytes) / f.drain_ms / 1e3);
  }
  printf(
      "drain, %zu MiB: %.0f MB/s into the ring, %.2f of a plain copy to pinned memory (target "
      "0.8), %.2f times its processor time; medians of %d pairs\n",
      mib, median(rate), median(ratio), median(cpu_ratio), kPairs);
}

size_t until_full(size_t bytes, CUresult (*allocate)(CUdeviceptr*, size_t),
                  CUresult (*release)(CUdeviceptr)) {
  std::vector<CUdeviceptr> all;
  CUdeviceptr p;
  while (allocate(&p, bytes) == CUDA_SUCCESS) all.push_back(p);
  for (CUdeviceptr q : all) OK(release(q));
  return all.size();
}

void full(size_t bytes) {
  size_t native = until_full(bytes, real().cuMemAlloc_v2, real().cuMemFree_v2);
  size_t ours = until_full(bytes, cuMemAlloc_v2, cuMemFree_v2);
  printf("allocate until full, %zu bytes each: %zu, the driver alone %zu: %.2f %% (target 99)\n",
         bytes, ours, native, 100.0 * static_cast<double>(ours) / static_cast<double>(native));
}

size_t taken(int count, CUresult (*allocate)(CUdeviceptr*, size_t),
             CUresult (*release)(CUdeviceptr)) {
  size_t before, after, total;
  std::vector<CUdeviceptr> all(static_cast<size_t>(count));
  OK(real().cuMemGetInfo_v2(&before, &total));
  for (CUdeviceptr& p : all) OK(allocate(&p, 1000));
  OK(real().cuMemGetInfo_v2(&after, &total));
  for (CUdeviceptr p : all) OK(release(p));
  return before - after;
}

void small() {
  size_t native = taken(100000, real().cuMemAlloc_v2, real().cuMemFree_v2);
  size_t ours = taken(100000, cuMemAlloc_v2, cuMemFree_v2);
  printf(
      "100,000 allocations of 1000 bytes: %zu KiB, the driver alone %zu KiB: %.3f times (target "
      "1.05)\n",
      ours >> 10, native >> 10, static_cast<double>(ours) / static_cast<double>(native));
}

}  // namespace

int main(int argc, char** argv) {
  CUdevice device;
  CUcontext primary;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&primary, device));
  OK(cuCtxSetCurrent(primary));
  const char* what = argc > 1 ? argv[1] : "";
  size_t value = argc > 2 ? strtoull(argv[2], nullptr, 0) : 0;
  if (!strcmp(what, "stall")) {
    stall(value ? value : 128);
  } else if (!strcmp(what, "drain")) {
    drain(value ? value : 128);
  } else if (!strcmp(what, "full") && value) {
    full(value);
  } else if (!strcmp(what, "small")) {
    small();
  } else {
    fprintf(stderr, "device_bench stall [MIB] | drain [MIB] | full BYTES | small\n");
    return 2;
  }
  fflush(stdout);
  _exit(0);
}
