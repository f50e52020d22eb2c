// Whatever wrote to device memory is noticed, and nothing else moves: kernels, copies, memsets, a
// peer, mapped virtual memory, variables, freed and allocated again. Snapshot after snapshot, each
// must equal the memory at its moment; a transfer that corrupts must be noticed; a snapshot that
// was not published is no parent.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/capture/hash.h"
#include "device/tests/check.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/real_driver.h"
#include "intercept/spec/cuda_types.h"
#include "snapshot/api/device_plugin.h"

namespace {

constexpr uint64_t kChunk = 64 << 10, kMiB = 1 << 20;

const char kPtx[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .global .align 16 .b8 table[262144];
.visible .global .align 4 .u32 small = 5;
.visible .entry poke(.param .u64 p, .param .u32 v) {
  .reg .u64 %rd<3>;
  .reg .u32 %r<2>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [v];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

using Bytes = std::vector<uint8_t>;
// A snapshot as a store has it.
struct Snapshot {
  std::string id;
  std::map<std::pair<uint64_t, uint64_t>, Bytes> chunks;  // space, address
};
struct Sink : gpuckpt::CaptureSink {
  Snapshot* into;
  const Snapshot* base = nullptr;
  uint64_t moved = 0, unchanged = 0, zeros = 0;
  bool corrupt = false, noticed = false;
  uint64_t room = ~0ull;
};
// Every device's thread gives what it copied. (Sealed bytes are given on as data.)
std::recursive_mutex sink_mutex;

void put(Sink* s, uint64_t space, uint64_t address, const uint8_t* bytes, uint64_t n) {
  while (n) {
    uint64_t size = std::min(kChunk - address % kChunk, n);
    bool fresh =
        s->into->chunks.emplace(std::pair(space, address), Bytes(bytes, bytes + size)).second;
    CHECK(fresh);
    address += size, bytes += size, n -= size;
  }
}
// What a store says to a sink, and what it names chunks by.
const gpuckpt::HashKey kNameKey = {{3, 1, 4, 1, 5, 9, 2, 6}};
const gpuckpt::device::HostNames& host_names() {
  static const gpuckpt::device::HostNames names(kNameKey);
  return names;
}

bool sink_data(gpuckpt::CaptureSink* sink, uint64_t space, uint64_t a, const void* b, uint64_t n) {
  std::lock_guard lock(sink_mutex);
  auto* s = static_cast<Sink*>(sink);
  s->moved += n;
  put(s, space, a, static_cast<const uint8_t*>(b), n);
  return true;
}
bool sink_zero(gpuckpt::CaptureSink* sink, uint64_t space, uint64_t a, uint64_t n) {
  std::lock_guard lock(sink_mutex);
  auto* s = static_cast<Sink*>(sink);
  s->zeros += n;
  Bytes zeros(n);
  put(s, space, a, zeros.data(), n);
  return true;
}
bool sink_sealed(gpuckpt::CaptureSink* sink, uint64_t space, uint64_t a, const void* b, uint64_t n,
                 const void* names) {
  std::lock_guard lock(sink_mutex);
  auto* s = static_cast<Sink*>(sink);
  auto* name = static_cast<const gpuckpt::device::ChunkName*>(names);
  Bytes bytes(static_cast<const uint8_t*>(b), static_cast<const uint8_t*>(b) + n);
  if (s->corrupt) bytes[n / 2] ^= 4;
  for (uint64_t at = 0; at < n; ++name) {
    uint64_t size = std::min(kChunk - (a + at) % kChunk, n - at);
    if (!(host_names().of(bytes.data() + at, size) == *name)) {
      s->noticed = true;
      return false;
    }
    at += size;
  }
  if (s->room < n) return false;
  s->room -= n;
  return sink_data(sink, space, a, bytes.data(), n);
}
bool sink_same(gpuckpt::CaptureSink* sink, uint64_t space, uint64_t a, uint64_t n) {
  std::lock_guard lock(sink_mutex);
  auto* s = static_cast<Sink*>(sink);
  CHECK(s->base);
  s->unchanged += n;
  for (uint64_t end = a + n; a < end;) {
    auto it = s->base->chunks.find({space, a});
    CHECK(it != s->base->chunks.end());  // never more than the parent has
    put(s, space, a, it->second.data(), it->second.size());
    a += it->second.size();
  }
  return true;
}
bool sink_blob(gpuckpt::CaptureSink*, const char*, const void*, uint64_t) { return true; }

const gpuckpt::DevicePlugin* plugin;
gpuckpt::DeviceReport report;

uint64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

Sink make_sink(Snapshot* into, const Snapshot* base) {
  Sink s;
  s.data = sink_data;
  s.zero = sink_zero;
  s.blob = sink_blob;
  s.sealed = sink_sealed;
  s.name_key = &kNameKey;
  s.same = sink_same;
  s.into = into;
  s.base = base;
  s.parent = base ? base->id.c_str() : nullptr;
  return s;
}

bool take(Sink* sink, bool publish) {
  bool ok = false;
  std::thread([&] {
    report = {};
    ok = plugin->freeze(200, now_ms() + 5000, &report);
    if (!ok) return;
    ok = plugin->stage(sink, &report);
    plugin->resume();
    ok = ok && plugin->drain(sink, &report);
  }).join();
  if (ok && publish)
    plugin->commit_attempt(sink->into->id.c_str());
  else
    plugin->abort_attempt();
  return ok;
}

// Every byte captured is the byte that is there (nothing ran since).
void compare(const Snapshot& snapshot) {
  Bytes now;
  for (const auto& [at, bytes] : snapshot.chunks) {
    now.resize(bytes.size());
    OK(gpuckpt::real().cuMemcpyDtoH_v2(now.data(), at.second, now.size()));
    if (now != bytes) {
      fprintf(stderr, "%zu bytes at %lx differ\n", bytes.size(), at.second);
      _exit(1);
    }
  }
}

struct Series {
  Snapshot last;
  bool any = false;
  int number = 0;
  // Takes the next; `dirty` chunks must have moved, not more than 1.05 times that.
  void next(const char* what, uint64_t dirty, uint64_t at_least_zeros = 0) {
    Snapshot fresh;
    fresh.id = "snapshot-" + std::to_string(++number);
    Sink sink = make_sink(&fresh, any ? &last : nullptr);
    if (!take(&sink, true)) {
      fprintf(stderr, "%s: %s\n", what, report.text);
      _exit(1);
    }
    compare(fresh);
    CHECK(report.moved_bytes == sink.moved);
    // (Small variables always move.)
    uint64_t most = dirty * kChunk + dirty * kChunk / 20 + 4096;
    if (sink.moved < dirty * kChunk || sink.moved > most || sink.zeros < at_least_zeros * kChunk) {
      fprintf(stderr, "%s: moved %lu of %lu dirty chunks, %lu zeros\n", what, sink.moved / kChunk,
              dirty, sink.zeros / kChunk);
      _exit(1);
    }
    if (any) CHECK(fresh.chunks.size() >= last.chunks.size() / 2);
    last = std::move(fresh);
    any = true;
  }
};

CUfunction poke;
void write_by_kernel(CUdeviceptr at, uint32_t value) {
  void* arguments[] = {&at, &value};
  OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuCtxSynchronize());
}

void fill(CUdeviceptr p, size_t bytes, uint8_t seed) {
  Bytes pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<uint8_t>(i * 31 + i / 977 + seed);
  OK(cuMemcpyHtoD_v2(p, pattern.data(), bytes));
}

CUdeviceptr map_memory(CUdevice device, size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  OK(cuMemCreate(&handle, bytes, &properties, 0));
  OK(cuMemMap(at, bytes, 0, handle, 0));
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(at, bytes, &access, 1));
  return at;
}

}  // namespace

int main() {
  plugin = gpuckpt::device_plugin;
  alarm(100);
  CUdevice device, other;
  CUcontext primary, peer;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDeviceGet(&other, 1));
  OK(cuDevicePrimaryCtxRetain(&peer, other));
  OK(cuDevicePrimaryCtxRetain(&primary, device));
  OK(cuCtxSetCurrent(primary));
  CUmodule module;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&poke, module, "poke"));
  CUdeviceptr table, small, far;
  size_t size;
  OK(cuModuleGetGlobal_v2(&table, &size, module, "table"));
  OK(cuModuleGetGlobal_v2(&small, &size, module, "small"));

  constexpr uint64_t kBig = 8 * kMiB, kBigChunks = kBig / kChunk;
  CUdeviceptr big, empty, mapped, tiny;
  OK(cuMemAlloc_v2(&big, kBig));
  OK(cuMemAlloc_v2(&empty, 4 * kMiB));
  OK(cuMemAlloc_v2(&tiny, 1000));
  mapped = map_memory(device, 2 * kMiB);
  fill(big, kBig, 1);
  fill(mapped, 2 * kMiB, 2);
  OK(cuMemsetD8_v2(empty, 0, 4 * kMiB));
  fill(tiny, 1000, 3);
  OK(cuCtxSetCurrent(peer));
  OK(cuMemAlloc_v2(&far, 2 * kMiB));
  fill(far, 2 * kMiB, 4);
  OK(cuCtxSetCurrent(primary));

  Series series;
  series.next("the first", kBigChunks + 32 + 1 + 32, 64 + 4);
  series.next("nothing", 0, 64);
  write_by_kernel(big + 5 * kChunk + 12, 77);
  series.next("a kernel", 1);
  write_by_kernel(big + 5 * kChunk + 12, 78);
  write_by_kernel(big + 9 * kChunk, 78);
  write_by_kernel(mapped + kMiB, 78);
  write_by_kernel(tiny + 8, 78);
  series.next("kernels", 4);
  write_by_kernel(big + 5 * kChunk + 12, 78);
  series.next("the same bytes again", 0);
  OK(cuMemsetD8_v2(big + kChunk - 1, 9, 2));
  series.next("a memset over an edge", 2);
  OK(cuMemcpyDtoD_v2(big + 20 * kChunk, big + 40 * kChunk + 1, kChunk));
  series.next("a copy", 1);
  OK(cuMemcpyPeer(big + 30 * kChunk, primary, far, peer, 3 * kChunk));
  series.next("a peer's copy", 3);
  OK(cuMemsetD8_v2(table + 3 * kChunk, 1, 16));
  OK(cuMemsetD8_v2(small, 1, 4));
  series.next("variables", table % kChunk ? 1 : 1);
  OK(cuMemsetD8_v2(big, 0, 4 * kChunk));
  series.next("zeros", 0, 64 + 4);
  OK(cuMemsetD8_v2(empty + 10 * kChunk, 1, kChunk));
  series.next("no zeros any more", 1, 63);

  // Freed and allocated again, elsewhere and at the old place.
  CUdeviceptr more;
  OK(cuMemAlloc_v2(&more, 3 * kMiB));
  fill(more, 3 * kMiB, 7);
  series.next("an allocation", 48);
  OK(cuMemFree_v2(more));
  series.next("gone", 0);
  OK(cuMemAlloc_v2(&more, 3 * kMiB));
  fill(more, 3 * kMiB, 8);
  series.next("another one at its place", 48);

  // A failed snapshot is no parent: what it sent is not in the store.
  write_by_kernel(big + 50 * kChunk, 5);
  {
    Snapshot lost;
    lost.id = "lost";
    Sink sink = make_sink(&lost, &series.last);
    CHECK(take(&sink, false));
  }
  series.next("after one that was not published", 1);
  write_by_kernel(big + 51 * kChunk, 5);
  {
    Snapshot lost;
    Sink sink = make_sink(&lost, &series.last);
    sink.room = 0;
    CHECK(!take(&sink, false) && report.code == gpuckpt::kExitError);
    CHECK(!gpuckpt::gate_closed());
  }
  series.next("after one whose writer died", 1);
  write_by_kernel(big + 52 * kChunk, 5);
  {
    Snapshot lost;
    Sink sink = make_sink(&lost, &series.last);
    sink.corrupt = true;
    CHECK(!take(&sink, false) && sink.noticed);
  }
  series.next("after a corrupted transfer", 1);
  // A writer that does not know our parent (pruned, another store) gets everything.
  {
    Snapshot full;
    full.id = "full";
    Sink sink = make_sink(&full, nullptr);
    CHECK(take(&sink, true));
    compare(full);
    CHECK(sink.unchanged == 0 && sink.moved >= 100 * kChunk);
    series.last = std::move(full);
  }
  series.next("after a full one", 0);
  set("GPUCKPT_STAGE", "off");
  write_by_kernel(big + 53 * kChunk, 5);
  write_by_kernel(big + 60 * kChunk, 5);
  series.next("without a stage", 2);
  CHECK(report.staged_bytes == 0);
  puts("PASS");
  fflush(stdout);
  _exit(0);
}
