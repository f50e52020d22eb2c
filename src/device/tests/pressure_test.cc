// What may go wrong around a snapshot, against the simulated driver (SIMGPU_MEMORY=1G): memory
// pressure while staged copies wait, a context destroyed meanwhile, streams that never become idle,
// captures, failing driver calls, a writer that goes away. The program under the interposer never
// sees any of it.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "device/capture/hash.h"
#include "device/tests/check.h"
#include "device/tests/faults.h"
#include "device/tests/kept_sink.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/gate/gate.h"
#include "intercept/spec/cuda_types.h"

namespace {

using kept::freeze, kept::holds, kept::make_sink, kept::now_ms, kept::on_thread, kept::report,
    kept::Sink;

using gpuckpt::device::ChunkName, gpuckpt::device::kChunkBytes;

const gpuckpt::DevicePlugin* plugin;
constexpr size_t kMiB = 1 << 20;

CUdeviceptr filled(size_t bytes, uint8_t value) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, bytes));
  OK(cuMemsetD8_v2(p, value, bytes));
  OK(cuCtxSynchronize());
  return p;
}

void stage_gives_way() {
  CUdeviceptr p = filled(300 * kMiB, 7);
  Sink sink = make_sink();
  size_t before, after, total;
  OK(cuMemGetInfo_v2(&before, &total));
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  CHECK(report.staged_bytes >= 300 * kMiB);
  plugin->resume();
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(before == after);  // the stage counts as free ...
  OK(cuMemsetD8_v2(p, 9, 300 * kMiB));
  CUdeviceptr big;
  OK(cuMemAlloc_v2(&big, before - 64 * kMiB));  // ... and is
  CHECK(on_thread([&] { return plugin->drain(&sink, &report); }));
  CHECK(holds(sink, p, 300 * kMiB, 7));  // as it was, not as it became
  OK(cuMemFree_v2(big));
  OK(cuMemFree_v2(p));
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(after >= before + 300 * kMiB);
}

void stage_gives_way_while_draining() {
  CUdeviceptr p = filled(300 * kMiB, 5);
  Sink sink = make_sink();
  sink.pause_us = 2000;
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  plugin->resume();
  bool drained = false;
  std::thread drain([&] { drained = plugin->drain(&sink, &report); });
  usleep(30000);
  size_t free_bytes, total;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  CUdeviceptr big;
  OK(cuMemAlloc_v2(&big, free_bytes - 64 * kMiB));
  OK(cuMemsetD8_v2(big, 1, 64 * kMiB));
  drain.join();
  CHECK(drained);
  CHECK(holds(sink, p, 300 * kMiB, 5));
  OK(cuMemFree_v2(big));
  OK(cuMemFree_v2(p));
}

void context_goes_while_staged(CUdevice device) {
  CUcontext extra;
  CUdeviceptr p;
  {
    OK(cuCtxCreate_v2(&extra, 0, device));
    p = filled(20 * kMiB, 3);
  }
  Sink sink = make_sink();
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  plugin->resume();
  OK(cuCtxDestroy_v2(extra));
  CHECK(on_thread([&] { return plugin->drain(&sink, &report); }));
  CHECK(holds(sink, p, 20 * kMiB, 3));
}

void only_context_goes_while_draining(CUdevice device) {
  CUcontext primary;
  OK(cuDevicePrimaryCtxRelease_v2(device));
  CUcontext extra;
  OK(cuCtxCreate_v2(&extra, 0, device));
  CUdeviceptr p = filled(60 * kMiB, 4);
  Sink sink = make_sink();
  sink.pause_us = 2000;
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  plugin->resume();
  bool drained = false;
  std::thread drain([&] { drained = plugin->drain(&sink, &report); });
  usleep(10000);
  OK(cuCtxDestroy_v2(extra));
  drain.join();
  if (!drained) fprintf(stderr, "%s\n", report.text);
  CHECK(drained);
  CHECK(holds(sink, p, 60 * kMiB, 4));
  OK(cuDevicePrimaryCtxRetain(&primary, device));
  OK(cuCtxSetCurrent(primary));
}

void busy_stream_is_named() {
  CUstream s;
  uint32_t* flag;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  *flag = 0;
  OK(cuStreamWaitValue32(s, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  uint64_t start = now_ms();
  CHECK(!freeze(700));
  CHECK(now_ms() - start < 3000);
  CHECK(report.code == gpuckpt::kExitTimeout);
  char name[32];
  snprintf(name, sizeof name, "%p", static_cast<void*>(s));
  if (!strstr(report.text, name)) fprintf(stderr, "%s: %s\n", name, report.text);
  CHECK(strstr(report.text, name));
  CHECK(strstr(report.text, "cuStreamWaitValue32"));
  CHECK(!gpuckpt::gate_closed());
  CHECK(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(s));
  CHECK(freeze(2000));
  plugin->resume();
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFreeHost(flag));
}

void capture_is_waited_for() {
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  if (cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS) return;
  CUdeviceptr p;
  CHECK(cuMemAlloc_v2(&p, 100) != CUDA_SUCCESS);  // forbidden now, as natively
  CHECK(!freeze(300));
  CHECK(report.code == gpuckpt::kExitTimeout);
  CHECK(strstr(report.text, "capture"));
  CUgraph graph = nullptr;
  cuStreamEndCapture(s, &graph);
  if (graph) cuGraphDestroy(graph);
  OK(cuStreamDestroy_v2(s));
}

void writer_goes(bool staged) {
  CUdeviceptr p = filled(20 * kMiB, 3);
  Sink sink = make_sink();
  sink.room = 6 * kMiB;
  set("GPUCKPT_STAGE", staged ? "" : "off");
  CHECK(freeze(3000));
  bool ok = on_thread([&] { return plugin->stage(&sink, &report); });
  CHECK(ok == staged);
  plugin->resume();
  if (staged) CHECK(!on_thread([&] { return plugin->drain(&sink, &report); }));
  CHECK(report.code == gpuckpt::kExitError);
  CHECK(strstr(report.text, "writer"));
  OK(cuMemsetD8_v2(p, 1, 20 * kMiB));
  OK(cuMemFree_v2(p));
  set("GPUCKPT_STAGE", "");
}

void part_of_it_staged() {
  CUdeviceptr p = filled(20 * kMiB, 6);
  Sink sink = make_sink();
  set("GPUCKPT_STAGE", "8388608");
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  CHECK(report.staged_bytes > 0 && report.staged_bytes <= 8 * kMiB);
  CHECK(report.device_bytes >= 20 * kMiB);
  plugin->resume();
  OK(cuMemsetD8_v2(p, 1, 20 * kMiB));
  CHECK(on_thread([&] { return plugin->drain(&sink, &report); }));
  CHECK(holds(sink, p, 20 * kMiB, 6));
  OK(cuMemFree_v2(p));
  set("GPUCKPT_STAGE", "");
}

void drain_rate_holds() {
  constexpr uint64_t kBytes = 24 * kMiB;
  CUdeviceptr p = filled(kBytes, 7);
  Sink sink = make_sink();
  set("GPUCKPT_DRAIN_RATE", "0.0625G");
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  plugin->resume();
  const auto begin = std::chrono::steady_clock::now();
  CHECK(on_thread([&] { return plugin->drain(&sink, &report); }));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // All but the last piece are waited for.
  CHECK(took.count() > double(kBytes - 2 * kMiB) / (64 * kMiB));
  CHECK(holds(sink, p, kBytes, 7));
  OK(cuMemFree_v2(p));
  set("GPUCKPT_DRAIN_RATE", "off");
}

// What a store says to a sink, and what it names chunks by.
const gpuckpt::HashKey kNameKey = {{3, 1, 4, 1, 5, 9, 2, 6}};
const gpuckpt::device::HostNames& host_names() {
  static const gpuckpt::device::HostNames names(kNameKey);
  return names;
}

// Keeps chunks by name as a writer does, also those that no address has yet.
struct NamedSink : Sink {
  std::map<std::pair<uint64_t, uint64_t>, std::vector<uint8_t>> known;
  uint64_t precopied = 0, by_name = 0;
  std::function<void()> after_round = [] {};

  NamedSink() : Sink(make_sink()) {
    name_key = &kNameKey;
    sealed = [](gpuckpt::CaptureSink* s, uint64_t space, uint64_t address, const void* bytes,
                uint64_t n, const void* names) {
      auto* self = static_cast<NamedSink*>(s);
      auto* from = static_cast<const uint8_t*>(bytes);
      auto* name = static_cast<const ChunkName*>(names);
      const bool is_precopied = space >= gpuckpt::wire::kSpacePrecopyBase;
      (is_precopied ? self->precopied : self->moved) += n;
      for (uint64_t at = 0, size; at < n; at += size, ++name) {
        size = std::min(n - at, kChunkBytes - (address + at) % kChunkBytes);
        std::vector<uint8_t> chunk(from + at, from + at + size);
        CHECK(host_names().of(chunk.data(), size) == *name);
        self->known[{name->word[0], name->word[1]}] = chunk;
        if (!is_precopied) CHECK(self->place(address + at, std::move(chunk)));
      }
      return self->room >= self->precopied + self->moved;
    };
    named = [](gpuckpt::CaptureSink* s, uint64_t, uint64_t address, uint64_t n, const void* names) {
      auto* self = static_cast<NamedSink*>(s);
      auto* name = static_cast<const ChunkName*>(names);
      for (uint64_t at = 0, size; at < n; at += size, ++name) {
        size = std::min(n - at, kChunkBytes - (address + at) % kChunkBytes);
        auto chunk = self->known.find({name->word[0], name->word[1]});
        CHECK(chunk != self->known.end() && chunk->second.size() == size);
        CHECK(self->place(address + at, chunk->second));
      }
      self->by_name += n;
      return true;
    };
    arrived = [](gpuckpt::CaptureSink* s) {
      static_cast<NamedSink*>(s)->after_round();
      return true;
    };
  }
  uint64_t moved = 0;
  bool place(uint64_t address, std::vector<uint8_t> chunk) {
    return pieces.emplace(address, std::move(chunk)).second;  // nothing comes twice
  }
};

// Chunks that differ, and from call to call.
void scribble(CUdeviceptr p, uint64_t bytes) {
  static uint32_t value = 1;
  for (uint64_t at = 0; at < bytes; at += kChunkBytes)
    OK(cuMemsetD32_v2(p + at, value++, std::min<uint64_t>(kChunkBytes, bytes - at) / 4));
  OK(cuCtxSynchronize());
}

bool holds_what_is_there(const Sink& sink, CUdeviceptr p, uint64_t bytes) {
  std::vector<uint8_t> now(bytes);
  OK(cuMemcpyDtoH_v2(now.data(), p, bytes));
  uint64_t at = 0;
  while (at < bytes) {
    auto it = sink.pieces.find(p + at);
    if (it == sink.pieces.end() || it->second.size() > bytes - at ||
        memcmp(it->second.data(), now.data() + at, it->second.size()) != 0)
      return false;
    at += it->second.size();
  }
  return true;
}

bool go_ahead(NamedSink* sink) {
  report = {};
  return on_thread([&] { return plugin->precopy(sink, 100, now_ms() + 3000, &report); });
}

// `meanwhile` runs after each round.
void more_than_the_stage(const char* what, std::function<void(CUdeviceptr)> meanwhile,
                         uint64_t least_rounds, uint64_t most_rounds) {
  constexpr uint64_t kBytes = 60 * kMiB, kStage = 16 * kMiB;
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kBytes));
  scribble(p, kBytes);
  NamedSink sink;
  CUcontext context;
  OK(cuCtxGetCurrent(&context));
  sink.after_round = [&] {  // a thread of the program
    std::thread([&] {
      OK(cuCtxSetCurrent(context));
      meanwhile(p);
    }).join();
  };
  set("GPUCKPT_STAGE", "16M");
  CHECK(go_ahead(&sink));
  const uint64_t rounds = report.precopy_rounds;
  if (rounds < least_rounds || rounds > most_rounds) {
    fprintf(stderr, "%s: %lu rounds\n", what, rounds);
    _exit(1);
  }
  CHECK(sink.precopied == report.precopy_bytes && sink.moved == 0 && sink.pieces.empty());
  scribble(p + 5 * kMiB, 100000);  // some of what went, once more
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&sink, &report); }));
  // But for what changed at last, all of it had room.
  if (least_rounds > 1) CHECK(report.moved_bytes <= report.staged_bytes + 4 * kMiB);
  plugin->resume();
  const CUdeviceptr after = filled(kMiB, 1);
  CHECK(on_thread([&] { return plugin->drain(&sink, &report); }));
  CHECK(holds_what_is_there(sink, p, kBytes));
  CHECK((sink.by_name > 0) == (least_rounds > 1));
  CHECK(report.staged_bytes <= kStage);
  plugin->abort_attempt();
  // The next attempt has another writer, which knows nothing.
  NamedSink next;
  CHECK(freeze(3000));
  CHECK(on_thread([&] { return plugin->stage(&next, &report); }));
  plugin->resume();
  CHECK(on_thread([&] { return plugin->drain(&next, &report); }));
  CHECK(next.by_name == 0 && holds_what_is_there(next, p, kBytes));
  plugin->abort_attempt();
  OK(cuMemFree_v2(after));
  OK(cuMemFree_v2(p));
  set("GPUCKPT_STAGE", "");
}

void copied_before_the_stop() {
  more_than_the_stage(
      "at rest", [](CUdeviceptr) {}, 3, 3);
  more_than_the_stage(
      "a part changes", [](CUdeviceptr p) { scribble(p, 4 * kMiB); }, 2, 5);
  more_than_the_stage(
      "all of it changes", [](CUdeviceptr p) { scribble(p, 60 * kMiB); }, 1, 1);
  std::vector<CUdeviceptr> others;
  more_than_the_stage(
      "memory comes and goes",
      [&](CUdeviceptr) {
        if (others.size() > 2) OK(cuMemFree_v2(others[others.size() - 3]));
        others.push_back(filled(3 * kMiB, 4));
      },
      2, 32);
  OK(cuMemFree_v2(others.back()));
  if (others.size() > 1) OK(cuMemFree_v2(others[others.size() - 2]));

  CUdeviceptr p = filled(30 * kMiB, 8);
  scribble(p, 30 * kMiB);
  NamedSink sink;
  CHECK(go_ahead(&sink) && !report.precopy_rounds);  // it fits
  set("GPUCKPT_STAGE", "off");
  CHECK(go_ahead(&sink) && !report.precopy_rounds);  // no room for a round
  set("GPUCKPT_STAGE", "512K");
  CHECK(go_ahead(&sink) && !report.precopy_rounds);  // too little for it to pay
  set("GPUCKPT_STAGE", "8M");
  sink.room = 10 * kMiB;
  CHECK(!go_ahead(&sink) && strstr(report.text, "writer"));
  plugin->abort_attempt();
  sink.room = ~0ull;
  set("GPUCKPT_PRECOPY", "off");
  CHECK(go_ahead(&sink) && !report.precopy_rounds);
  set("GPUCKPT_PRECOPY", "on");
  set("GPUCKPT_STAGE", "");
  OK(cuMemFree_v2(p));
}

// Every call of the driver that the rounds make fails once.
void precopied_memory_survives() {
  constexpr uint64_t kBytes = 6 * kMiB;
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, kBytes));
  scribble(p, kBytes);
  set("GPUCKPT_STAGE", "2M");
  faults::install_all();
  long calls = 0, gave_up = 0;
  for (const char* failed = "";; ++calls) {
    NamedSink sink;
    faults::arm(calls + 1);
    const bool ok = go_ahead(&sink);
    failed = faults::failed;
    faults::arm(0);
    CHECK(!gpuckpt::gate_closed());
    CHECK(ok || (report.code && report.text[0]));
    gave_up += !ok;
    if (!failed) {
      CHECK(ok && report.precopy_rounds >= 2);
      break;
    }
    // The snapshot that comes all the same, where the rounds only ended early.
    if (ok && calls % 8 == 0) {
      CHECK(freeze(3000) && on_thread([&] { return plugin->stage(&sink, &report); }));
      plugin->resume();
      CHECK(on_thread([&] { return plugin->drain(&sink, &report); }));
      CHECK(holds_what_is_there(sink, p, kBytes));
    }
    plugin->abort_attempt();
  }
  CHECK(calls > 20 && gave_up > 0);
  fprintf(stderr, "%ld calls of the rounds of pre-copy, %ld of which end them\n", calls, gave_up);
  plugin->abort_attempt();
  OK(cuMemFree_v2(p));
  set("GPUCKPT_STAGE", "");
}

size_t free_memory() {
  size_t free_bytes, total;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  return free_bytes;
}

CUmemAllocationProp shareable_memory(CUdevice device) {
  CUmemAllocationProp p = {};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return p;
}

// What a pool keeps after a free is there for cuMemCreate, as it is for cuMemAlloc.
void pools_are_trimmed(CUdevice device) {
  const size_t before = free_memory(), half = before / 2 / kMiB * kMiB;
  CUmemoryPool pool;
  cuuint64_t keep = ~0ull, none = 0;
  OK(cuDeviceGetDefaultMemPool(&pool, device));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  const CUmemAllocationProp p = shareable_memory(device);
  for (bool create : {false, true}) {
    CUdeviceptr kept;
    OK(cuMemAllocAsync(&kept, half, nullptr));
    OK(cuMemFreeAsync(kept, nullptr));
    OK(cuStreamSynchronize(nullptr));
    if (create) {
      CUmemGenericAllocationHandle handle;
      OK(cuMemCreate(&handle, half + 64 * kMiB, &p, 0));
      OK(cuMemRelease(handle));
    } else {
      CUdeviceptr big;
      OK(cuMemAlloc_v2(&big, half + 64 * kMiB));
      OK(cuMemFree_v2(big));
    }
  }
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
  OK(cuMemPoolTrimTo(pool, 0));
}

// Memory whose last descriptor the program has closed is free for cuMemAlloc and cuMemCreate.
void closed_descriptors_are_freed(CUdevice device) {
  const size_t half = free_memory() / 2 / kMiB * kMiB;
  const CUmemAllocationProp p = shareable_memory(device);
  for (bool create : {false, true}) {
    CUmemGenericAllocationHandle handle;
    int fd;
    OK(cuMemCreate(&handle, half, &p, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemRelease(handle));
    // The open descriptor keeps the memory.
    CHECK(cuMemCreate(&handle, half + 64 * kMiB, &p, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    close(fd);
    if (create) {
      OK(cuMemCreate(&handle, half + 64 * kMiB, &p, 0));
      OK(cuMemRelease(handle));
    } else {
      CUdeviceptr big;
      OK(cuMemAlloc_v2(&big, half + 64 * kMiB));
      OK(cuMemFree_v2(big));
    }
  }
}

void until_full() {
  size_t free_bytes, total;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  std::vector<CUdeviceptr> all;
  CUdeviceptr p;
  CUresult r;
  while ((r = cuMemAlloc_v2(&p, kMiB)) == CUDA_SUCCESS) all.push_back(p);
  CHECK(r == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(all.size() * kMiB >= free_bytes / 100 * 98);
  for (CUdeviceptr q : all) OK(cuMemFree_v2(q));
  size_t again;
  OK(cuMemGetInfo_v2(&again, &total));
  CHECK(again == free_bytes);
  CHECK(cuMemAlloc_v2(&p, total + kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemFree_v2(all[0]) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree_v2(0x123450000) == CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main() {
  plugin = gpuckpt::device_plugin;
  alarm(230);
  set("GPUCKPT_STAGE", "");
  CUdevice device;
  CUcontext primary;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&primary, device));
  OK(cuCtxSetCurrent(primary));
  until_full();
  pools_are_trimmed(device);
  closed_descriptors_are_freed(device);
  stage_gives_way();
  stage_gives_way_while_draining();
  part_of_it_staged();
  drain_rate_holds();
  copied_before_the_stop();
  precopied_memory_survives();
  context_goes_while_staged(device);
  only_context_goes_while_draining(device);
  busy_stream_is_named();
  capture_is_waited_for();
  writer_goes(true);
  writer_goes(false);
  stage_gives_way();
  puts("PASS");
  fflush(stdout);
  _exit(0);
}
