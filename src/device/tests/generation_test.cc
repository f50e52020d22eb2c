// A program's whole life over several generations, in one test process: objects and memory are made
// through the interposer, captured, and replayed in a forked child whose driver is rewound; the
// child checks them and goes on.
//   generation_test [seed]
// Needs GPUCKPT_DRIVER = the simulated driver.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/tests/check.h"
#include "device/tests/faults.h"
#include "device/tests/map_source.h"
#include "gpuckpt/wire.h"
#include "intercept/gate/gate.h"
#include "intercept/spec/cuda_types.h"
#include "snapshot/api/device_plugin.h"

namespace {

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.global .align 4 .u32 hidden[4] = {1, 2, 3, 4};
.visible .const .align 4 .u32 factor = 3;
.visible .global .align 8 .u64 self = generic(counter);
.visible .entry bump(.param .u64 out) {
  .reg .u32 %r<6>;
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [counter];
  add.u32 %r1, %r1, 1;
  st.global.u32 [counter], %r1;
  ld.global.u32 %r2, [hidden+8];
  add.u32 %r2, %r2, 10;
  st.global.u32 [hidden+8], %r2;
  ld.const.u32 %r3, [factor];
  mul.lo.u32 %r4, %r1, %r3;
  add.u32 %r5, %r4, %r2;
  st.global.u32 [%rd2], %r5;
  ret;
}
)";

// What was captured, by address.
struct Store {
  Extents spaces;
  std::map<std::string, std::string> blobs;
  uint64_t data = 0, zero = 0;
};
struct Sink : gpuckpt::CaptureSink {
  Store* store;
};
bool sink_data(gpuckpt::CaptureSink* s, uint64_t space, uint64_t address, const void* bytes,
               uint64_t n) {
  Store* store = static_cast<Sink*>(s)->store;
  auto* b = static_cast<const uint8_t*>(bytes);
  CHECK(store->spaces[space].emplace(address, std::vector<uint8_t>(b, b + n)).second);
  store->data += n;
  return true;
}
bool sink_zero(gpuckpt::CaptureSink* s, uint64_t space, uint64_t address, uint64_t n) {
  Store* store = static_cast<Sink*>(s)->store;
  CHECK(store->spaces[space].emplace(address, std::vector<uint8_t>(n, 0)).second);
  store->zero += n;
  return true;
}
bool sink_blob(gpuckpt::CaptureSink* s, const char* name, const void* bytes, uint64_t n) {
  static_cast<Sink*>(s)->store->blobs[name].append(static_cast<const char*>(bytes), n);
  return true;
}
struct Memory {
  CUdeviceptr address;
  size_t size;
  uint32_t value;
  bool pool;
};

struct World {
  std::mt19937 random;
  CUcontext primary, second;
  CUdevice device;
  std::vector<CUstream> streams;
  CUevent begin, end, untimed, never;
  std::vector<Memory> memory;
  std::vector<uint32_t*> pinned;
  uint32_t* registered;
  CUmodule module, module2;
  CUfunction bump;
  CUlibrary library;
  CUkernel kernel;
  CUfunction kernel_function;
  CUdeviceptr counter, self;
  uint32_t bumps = 0, library_bumps = 0;
  CUmemoryPool pool, default_pool;
  CUdeviceptr out;
  CUdeviceptr range, managed;  // two pieces mapped into one reservation; managed memory
  CUmemGenericAllocationHandle physical;
  float elapsed;
  std::string log;
};
World w;

void fill(const Memory& m) { OK(cuMemsetD32_v2(m.address, m.value, m.size / 4)); }

void add_memory() {
  Memory m = {};
  unsigned shift = static_cast<unsigned>(w.random() % 22);
  m.size = (4 + w.random() % (1u << shift)) & ~size_t{3};
  m.value = w.random() % 5 ? static_cast<uint32_t>(w.random()) : 0;
  switch (w.random() % 4) {
    case 0:
      OK(cuMemAllocAsync(&m.address, m.size, w.streams[0]));
      m.pool = true;
      break;
    case 1:
      OK(cuMemAllocFromPoolAsync(&m.address, m.size, w.pool, w.streams[1]));
      m.pool = true;
      break;
    default:
      OK(cuMemAlloc_v2(&m.address, m.size));
  }
  fill(m);
  w.memory.push_back(m);
}

void drop_memory() {
  size_t i = w.random() % w.memory.size();
  Memory m = w.memory[i];
  w.memory.erase(w.memory.begin() + static_cast<long>(i));
  if (m.pool && w.random() % 2)
    OK(cuMemFreeAsync(m.address, w.streams[w.random() % 2]));
  else
    OK(cuMemFree_v2(m.address));
}

uint32_t launch(CUfunction f, CUstream stream) {
  void* args[] = {&w.out};
  uint32_t result = 0;
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, args, nullptr));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(&result, w.out, 4));
  return result;
}

void setup(bool with_ptx) {
  OK(cuInit(0));
  OK(cuDeviceGet(&w.device, 0));
  OK(cuDevicePrimaryCtxRetain(&w.primary, w.device));
  OK(cuCtxSetCurrent(w.primary));
  OK(cuCtxCreate_v2(&w.second, 0, w.device));  // pushes
  CUcontext popped;
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == w.second);
  for (int i = 0; i < 3; ++i) {
    CUstream s;
    OK(cuStreamCreateWithPriority(&s, i ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT, 0));
    w.streams.push_back(s);
  }
  OK(cuDeviceGetDefaultMemPool(&w.default_pool, w.device));
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = w.device;
  OK(cuMemPoolCreate(&w.pool, &props));
  uint64_t threshold = 8 << 20;
  OK(cuMemPoolSetAttribute(w.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  for (int i = 0; i < 60; ++i) add_memory();
  for (int i = 0; i < 20; ++i) drop_memory();
  for (size_t bytes : {100, 5000, 3 << 20}) {
    void* p;
    OK(cuMemHostAlloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE));
    memset(p, 0x5a, bytes);
    w.pinned.push_back(static_cast<uint32_t*>(p));
  }
  w.registered = static_cast<uint32_t*>(aligned_alloc(4096, 8192));
  OK(cuMemHostRegister_v2(w.registered, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  OK(cuMemAlloc_v2(&w.out, 4));
  OK(cuEventCreate(&w.begin, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&w.end, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&w.untimed, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&w.never, CU_EVENT_DEFAULT));
  OK(cuEventRecord(w.begin, w.streams[0]));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = w.device;
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cuMemAddressReserve(&w.range, 16 << 20, 0, 0, 0));
  for (int i = 0; i < 2; ++i) {
    OK(cuMemCreate(&w.physical, 2 << 20, &prop, 0));
    OK(cuMemMap(w.range + static_cast<CUdeviceptr>(i) * (4 << 20), 2 << 20, 0, w.physical, 0));
    OK(cuMemSetAccess(w.range + static_cast<CUdeviceptr>(i) * (4 << 20), 2 << 20, &access, 1));
    OK(cuMemsetD32_v2(w.range + static_cast<CUdeviceptr>(i) * (4 << 20),
                      0xabcd0000u + static_cast<uint32_t>(i), 2 << 18));
    if (!i) OK(cuMemRelease(w.physical));
  }
  OK(cuMemAllocManaged(&w.managed, 5000, CU_MEM_ATTACH_GLOBAL));
  memset(reinterpret_cast<void*>(w.managed), 0x33, 5000);
  OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 << 20));
  if (with_ptx) {
    CUmodule gone;
    OK(cuModuleLoadData(&gone, kPtx));
    OK(cuModuleLoadData(&w.module, kPtx));
    OK(cuModuleUnload(gone));
    OK(cuModuleLoadDataEx(&w.module2, kPtx, 0, nullptr, nullptr));
    OK(cuModuleGetFunction(&w.bump, w.module, "bump"));
    size_t bytes;
    OK(cuModuleGetGlobal_v2(&w.counter, &bytes, w.module, "counter"));
    OK(cuModuleGetGlobal_v2(&w.self, &bytes, w.module, "self"));
    OK(cuLibraryLoadData(&w.library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    OK(cuLibraryGetKernel(&w.kernel, w.library, "bump"));
    OK(cuKernelGetFunction(&w.kernel_function, w.kernel));
  }
  OK(cuEventRecord(w.end, w.streams[0]));
  OK(cuEventRecord(w.untimed, w.streams[1]));
  OK(cuEventSynchronize(w.end));
  OK(cuEventElapsedTime(&w.elapsed, w.begin, w.end));
}

void check(bool with_ptx) {
  CUcontext current;
  OK(cuCtxGetCurrent(&current));
  CHECK(current == w.primary);
  OK(cuCtxPushCurrent_v2(w.second));
  OK(cuCtxGetCurrent(&current));
  CHECK(current == w.second);
  OK(cuCtxPopCurrent_v2(&current));
  CHECK(current == w.second);
  for (const Memory& m : w.memory) {
    std::vector<uint32_t> host(m.size / 4);
    OK(cuMemcpyDtoH_v2(host.data(), m.address, m.size));
    for (uint32_t v : host) CHECK(v == m.value);
    CUdeviceptr base;
    size_t size;
    OK(cuMemGetAddressRange_v2(&base, &size, m.address + m.size / 2));
    CHECK(base == m.address);
    CHECK(size >= m.size && size < m.size + 512);
    if (m.pool) {
      CUmemoryPool pool = nullptr;
      OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m.address));
      CHECK(pool == w.pool || pool == w.default_pool);
    } else {
      CUcontext context;
      OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, m.address));
      CHECK(context == w.primary);
    }
  }
  CUmemoryPool pool;
  OK(cuDeviceGetDefaultMemPool(&pool, w.device));
  CHECK(pool == w.default_pool);
  uint64_t threshold = 0;
  OK(cuMemPoolGetAttribute(w.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CHECK(threshold == 8 << 20);
  for (CUstream s : w.streams) {
    unsigned flags;
    OK(cuStreamGetFlags(s, &flags));
    CHECK(flags == (s == w.streams[0] ? 0u : 1u));
    CUcontext context;
    OK(cuStreamGetCtx(s, &context));
    CHECK(context == w.primary);
    OK(cuStreamSynchronize(s));
    OK(cuStreamQuery(s));
  }
  for (uint32_t* p : w.pinned) {
    CHECK(p[0] == 0x5a5a5a5a);
    CUdeviceptr d;
    OK(cuMemHostGetDevicePointer_v2(&d, p, 0));
    uint32_t back = 0;
    OK(cuMemcpyDtoH_v2(&back, d, 4));
    CHECK(back == 0x5a5a5a5a);
    unsigned flags;
    OK(cuMemHostGetFlags(&flags, p));
    CHECK(flags & CU_MEMHOSTALLOC_PORTABLE);
  }
  for (int i = 0; i < 2; ++i) {
    uint32_t value = 0;
    OK(cuMemcpyDtoH_v2(&value, w.range + static_cast<CUdeviceptr>(i) * (4 << 20) + (1 << 20), 4));
    CHECK(value == 0xabcd0000u + static_cast<uint32_t>(i));
  }
  CUmemAllocationProp prop;
  OK(cuMemGetAllocationPropertiesFromHandle(&prop, w.physical));
  CHECK(prop.location.id == w.device);
  auto* managed = reinterpret_cast<uint32_t*>(w.managed);
  CHECK(managed[5] == 0x33333333);
  uint32_t from_managed = 0;
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(&from_managed), w.managed + 20, 4));
  CHECK(from_managed == 0x33333333);
  unsigned is_managed = 0;
  OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, w.managed + 8));
  CHECK(is_managed == 1);
  size_t limit = 0;
  OK(cuCtxGetLimit(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
  CHECK(limit == 3 << 20);
  w.registered[7] = 77;
  OK(cuMemcpyHtoDAsync_v2(w.out, w.registered + 7, 4, w.streams[1]));
  OK(cuStreamSynchronize(w.streams[1]));
  uint32_t seven = 0;
  OK(cuMemcpyDtoH_v2(&seven, w.out, 4));
  CHECK(seven == 77);

  float ms = -1;
  OK(cuEventElapsedTime(&ms, w.begin, w.end));
  CHECK(ms > w.elapsed - 0.01f && ms < w.elapsed + 0.01f);
  OK(cuEventQuery(w.untimed));
  CHECK(cuEventElapsedTime(&ms, w.untimed, w.end) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventElapsedTime(&ms, w.never, w.end) == CUDA_ERROR_INVALID_HANDLE);
  CUevent later;
  OK(cuEventCreate(&later, CU_EVENT_DEFAULT));
  OK(cuEventRecord(later, w.streams[2]));
  OK(cuEventSynchronize(later));
  OK(cuEventElapsedTime(&ms, w.begin, later));
  CHECK(ms >= w.elapsed);
  OK(cuStreamWaitEvent(w.streams[0], w.end, 0));
  OK(cuEventDestroy_v2(later));

  if (with_ptx) {
    for (CUstream s : w.streams) {
      ++w.bumps;
      CHECK(launch(w.bump, s) == (5 + w.bumps) * 3 + 3 + 10 * w.bumps);
    }
    ++w.library_bumps;
    CHECK(launch(w.kernel_function, w.streams[0]) ==
          (5 + w.library_bumps) * 3 + 3 + 10 * w.library_bumps);
    ++w.library_bumps;  // a kernel stands for its function in the current context
    CHECK(launch(reinterpret_cast<CUfunction>(w.kernel), w.streams[1]) ==
          (5 + w.library_bumps) * 3 + 3 + 10 * w.library_bumps);
    uint32_t counter = 0;
    OK(cuMemcpyDtoH_v2(&counter, w.counter, 4));
    CHECK(counter == 5 + w.bumps);
    uint64_t self = 0;
    OK(cuMemcpyDtoH_v2(&self, w.self, 8));
    CHECK(self == w.counter);
    CUfunction again;
    OK(cuModuleGetFunction(&again, w.module, "bump"));
    CHECK(again == w.bump);
    OK(cuKernelGetFunction(&again, w.kernel));
    CHECK(again == w.kernel_function);
  }
  for (int i = 0; i < 10; ++i) add_memory();
  for (int i = 0; i < 10; ++i) drop_memory();
  CUstream extra;
  OK(cuStreamCreate(&extra, CU_STREAM_NON_BLOCKING));
  for (CUstream s : w.streams) CHECK(s != extra);
  OK(cuStreamDestroy_v2(extra));
  size_t free_bytes, total;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  CHECK(free_bytes < total);
}

uint64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

// As in life: driver work of the snapshot runs on a thread of its own.
template <typename F>
void must(F work, const gpuckpt::DeviceReport& report, const char* what) {
  bool ok = false;
  std::thread([&] { ok = work(); }).join();
  if (ok) return;
  fprintf(stderr, "generation %u: %s: %d %s\n", gpuckpt::generation(), what, report.code,
          report.text);
  _exit(1);
}

// Captures; true in the restored child, false in the parent after it went on.
bool snapshot(bool staged) {
  const gpuckpt::DevicePlugin* plugin = gpuckpt::device_plugin;
  gpuckpt::DeviceReport report = {};
  Store store;
  Sink sink;
  sink.data = sink_data;
  sink.zero = sink_zero;
  sink.blob = sink_blob;
  sink.store = &store;
  set("GPUCKPT_STAGE", staged ? "" : "off");
  CHECK(plugin->active());
  must([&] { return plugin->freeze(500, now_ms() + 5000, &report); }, report, "freeze");
  must([&] { return plugin->stage(&sink, &report); }, report, "stage");
  CHECK(report.device_bytes > 0);
  CHECK((report.staged_bytes > 0) == staged);
  CHECK(store.blobs["device"].find("\"allocations\"") != std::string::npos);
  fflush(nullptr);
  pid_t child = staged ? -1 : fork();
  if (child == 0) {
    plugin->rewind(true);
    CHECK(gpuckpt::gate_closed());
    MapSource source(&store.spaces);
    must([&] { return plugin->restore(&source, &report); }, report, "restore");
    CHECK(!gpuckpt::gate_closed());
    return true;
  }
  plugin->resume();
  must([&] { return plugin->drain(&sink, &report); }, report, "drain");
  CHECK(store.data + store.zero >= report.staged_bytes);
  if (child > 0) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  }
  return false;
}

// ---- every call of the driver that capture and restore make fails, one after the other ----

bool on_thread(bool (*work)(void*), void* argument) {
  bool ok = false;
  std::thread([&] { ok = work(argument); }).join();
  return ok;
}
struct Attempt {
  gpuckpt::DeviceReport report = {};
  Store store;
  Sink sink;
  MapSource source{&store.spaces};
  Attempt() {
    sink.data = sink_data;
    sink.zero = sink_zero;
    sink.blob = sink_blob;
    sink.store = &store;
  }
};
bool capture(void* argument) {
  auto* a = static_cast<Attempt*>(argument);
  const gpuckpt::DevicePlugin* plugin = gpuckpt::device_plugin;
  if (!plugin->freeze(200, now_ms() + 300, &a->report)) return false;
  bool ok = plugin->stage(&a->sink, &a->report);
  plugin->resume();
  return ok && plugin->drain(&a->sink, &a->report);
}
bool put_back(void* argument) {
  auto* a = static_cast<Attempt*>(argument);
  return gpuckpt::device_plugin->restore(&a->source, &a->report);
}

// The program survives every failure of a capture, and says why there is no snapshot.
void capture_survives(long step, long first) {
  long n = first;
  for (;; n += step) {
    Attempt a;
    faults::arm(n);
    bool ok = on_thread(capture, &a);
    const char* failed = faults::failed;
    faults::arm(0);
    CHECK(!gpuckpt::gate_closed());
    if (!ok && (!a.report.code || !a.report.text[0])) {
      fprintf(stderr, "call %ld (%s) of a capture failed without a report\n", n, failed);
      _exit(1);
    }
    gpuckpt::device_plugin->abort_attempt();
    if (!failed) break;
  }
  check(true);
  fprintf(stderr, "%ld calls of a capture\n", n);
}

bool give_memory(void* argument) {
  auto* a = static_cast<Attempt*>(argument);
  return gpuckpt::device_plugin->suspend(200, now_ms() + 300, true, &a->report);
}
bool take_memory(void* argument) {
  return gpuckpt::device_plugin->wake("", &static_cast<Attempt*>(argument)->report);
}

// A suspend that fails changes nothing; a program that cannot be woken stays suspended, and wakes
// later as it was.
void suspend_survives(long step, long first) {
  for (auto* fails : {give_memory, take_memory}) {
    long n = first;
    for (bool more = true; more; n += step) {
      Attempt a;
      if (fails == take_memory)
        must([&] { return on_thread(give_memory, &a); }, a.report, "suspend");
      faults::arm(n);
      bool ok = on_thread(fails, &a);
      const char* failed = faults::failed;
      faults::arm(0);
      more = failed;
      CHECK(gpuckpt::gate_closed() == (ok == (fails == give_memory)));
      if (!ok && (!a.report.code || !a.report.text[0])) {
        fprintf(stderr, "call %ld (%s) of a suspend or wake failed without a report\n", n, failed);
        _exit(1);
      }
      if (gpuckpt::gate_closed())
        must([&] { return on_thread(take_memory, &a); }, a.report, "wake");
      CHECK(!gpuckpt::gate_closed());
    }
    check(true);
    fprintf(stderr, "%ld calls of a %s\n", n, fails == give_memory ? "suspend" : "wake");
  }
}

// A restore either fails and says why, or the program that comes out of it is whole.
void restore_fails_cleanly(long step, long first) {
  Attempt a;
  gpuckpt::DeviceReport& report = a.report;
  const gpuckpt::DevicePlugin* plugin = gpuckpt::device_plugin;
  set("GPUCKPT_STAGE", "off");
  must([&] { return plugin->freeze(500, now_ms() + 5000, &report); }, report, "freeze");
  must([&] { return plugin->stage(&a.sink, &report); }, report, "stage");
  must([&] { return plugin->drain(&a.sink, &report); }, report, "drain");
  long n = first;
  for (bool more = true; more; n += step) {
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
      plugin->rewind(true);
      report = {};
      faults::arm(n);
      bool ok = on_thread(put_back, &a);
      const char* failed = faults::failed;
      faults::arm(0);
      if (ok) check(true);
      if (!ok && (!report.code || !report.text[0])) {
        fprintf(stderr, "call %ld (%s) of a restore failed without a report\n", n, failed);
        _exit(1);
      }
      _exit(failed ? 0 : 42);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 42)) {
      fprintf(stderr, "call %ld of a restore: status %x\n", n, static_cast<unsigned>(status));
      _exit(1);
    }
    more = WEXITSTATUS(status) == 0;
  }
  plugin->resume();
  check(true);
  fprintf(stderr, "%ld calls of a restore\n", n);
}

}  // namespace

int main(int argc, char** argv) {
  w.random.seed(argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 1);
  bool with_ptx = argc <= 2 || strcmp(argv[2], "noptx");
  alarm(100);
  setup(with_ptx);
  check(with_ptx);
  if (argc > 2 && !strcmp(argv[2], "faults")) {  // seed faults step: all of them with step 1
    long step = argc > 3 ? atol(argv[3]) : 1, first = 1 + atol(argv[1]) % step;
    alarm(static_cast<unsigned>(100 + 3000 / step));
    faults::install_all();
    capture_survives(step, first);
    suspend_survives(step, first);
    restore_fails_cleanly(step, first);
    fprintf(stderr, "PASS\n");
    _exit(0);
  }
  snapshot(true);
  check(with_ptx);
  for (int generations = 0; generations < 3; ++generations) {
    if (!snapshot(false)) {
      check(with_ptx);  // the process that was captured goes on, too
      break;
    }
    check(with_ptx);
  }
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  fflush(nullptr);
  _exit(0);
}
