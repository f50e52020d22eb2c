#include "device/capture/capture.h"

#include <sys/mman.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/json_writer.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "device/arena/device_heap.h"
#include "device/arena/vmm.h"
#include "device/base/call_sites.h"
#include "device/base/registry_format.h"
#include "device/base/times.h"
#include "device/capture/idle.h"
#include "device/modules/links.h"
#include "device/modules/variables.h"
#include "device/objects/arrays.h"
#include "device/objects/graphs.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/gate/launch_note.h"
#include "intercept/gate/refuse.h"
#include "intercept/gate/step.h"
#include "intercept/generated/functions.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt {
namespace device {

MachineFacts machine_facts;
RealmPlaces places_of_init;

void live_contexts(Vector<uint64_t>* out) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kContext && static_cast<ContextObject*>(o)->alive)
      out->push(o->name);
}

namespace {

uint64_t now_ms() { return sys::now_us() / 1000; }

// ---- freeze ----

bool check_refusals(DeviceReport* report) {
  {
    MutexLock guard(registry().lock);
    if (registry().broken)
      return report->fail(
          kExitRefused, "%s",
          registry().reason[0] ? registry().reason : "an object could not be recorded");
  }
  if (const char* why = vmm_refusal()) return report->fail(kExitRefused, "%s", why);
  for (int device = 0; device < kMaxDevices; ++device) {
    DeviceMemory* memory = machine_facts.devices > device ? device_memory(device) : nullptr;
    if (memory && memory->native)
      return report->fail(kExitRefused,
                          "cuMemAlloc: device %d has no virtual memory management, so memory is at "
                          "addresses that a restore cannot choose",
                          device);
  }
  Refusal refusal;
  for (int i = refuse_next(0, &refusal); i >= 0; i = refuse_next(i, &refusal))
    if (refusal.count > 0)
      return report->fail(kExitRefused, "%s: %s (%ld)", refusal.function, refusal.reason,
                          static_cast<long>(refusal.count));
  return check_device_heap(report);
}

const char* kernel_name(uint64_t handle) {
  const char* name = nullptr;
  auto* function = reinterpret_cast<CUfunction>(handle);
  if (!function) return nullptr;
  if (real().cuFuncGetName(&name, function) == CUDA_SUCCESS && name) return name;
  if (real().cuKernelGetName(&name, reinterpret_cast<CUkernel>(function)) == CUDA_SUCCESS)
    return name;
  return nullptr;
}

struct Culprit {
  char text[256] = "";
};

// "stream 0x... is busy, last kernel K, behind it cuMemcpyDtoHAsync_v2"
void name_busy(uint64_t context, uint64_t stream, Culprit* culprit) {
  WithContext with(context);  // names of kernels are asked for in it
  CUstream handle = stream ? real_of<CUstream>(Kind::kStream, stream) : nullptr;
  LaunchNote& note = launch_note_of(bits(handle));
  bool known = note.stream.load(std::memory_order_relaxed) == bits(handle);
  const char* kernel = known ? kernel_name(note.function.load(std::memory_order_relaxed)) : nullptr;
  uint32_t call = known ? note.call.load(std::memory_order_relaxed) : 0;
  size_t room = sizeof culprit->text;
  if (stream)
    format(culprit->text, room, "stream %p is busy", reinterpret_cast<void*>(stream));
  else
    copy(culprit->text, room, "a default stream is busy");
  auto add = [&](const char* what, const char* name) {
    size_t used = length(culprit->text);
    format(culprit->text + used, room - used, "%s%s", what, name);
  };
  if (kernel) add(", last kernel ", kernel);
  if (call) add(kernel ? ", behind it " : ", last queued was ", function_name(call - 1));
}

// Looks for a stream that is busy and stays so: the gate is open, others come and go.
bool find_busy(Culprit* culprit) {
  Vector<uint64_t> contexts;
  live_contexts(&contexts);
  for (uint64_t name : contexts) {
    IdleWatch watch(name);
    bool busy = true;
    for (int look = 0; busy && look < 20; ++look) {
      if (look) sys::sleep_us(2000);
      busy = watch.poll() == CUDA_ERROR_NOT_READY;
    }
    if (!busy) continue;
    name_busy(name, watch.busy(), culprit);
    return true;
  }
  return false;
}

// Polls until every context is idle. False: not by then (culprit), or a context is broken (report).
bool wait_contexts(uint64_t until_ms, bool marked_only, Culprit* culprit, DeviceReport* report) {
  Vector<uint64_t> contexts;
  live_contexts(&contexts);
  for (uint64_t name : contexts) {
    IdleWatch watch(name);
    for (uint64_t pause = 20;; pause = pause < 1000 ? pause * 2 : 1000) {
      CUresult result = watch.poll(marked_only);
      if (result == CUDA_SUCCESS) break;
      if (result != CUDA_ERROR_NOT_READY) {
        const char* text = nullptr;
        real().cuGetErrorName(result, &text);
        return report->fail(
            kExitRefused, "the device reports %s (%d): a program in this state cannot be captured",
            text ? text : "an error", static_cast<int>(result));
      }
      if (now_ms() >= until_ms) {
        name_busy(name, watch.busy(), culprit);
        return false;
      }
      sys::sleep_us(pause);
    }
  }
  return true;
}

// What `freeze` found when it closed the gate.
struct AtFreeze {
  bool loaded;
  uint64_t stray_ioctls;
} at_freeze;

bool close_gate(uint64_t until_ms, GateHolder* holder) {
  at_freeze = {realm_loaded(), realm_stray_ioctls().count};
  return gate_close(until_ms * 1000000, holder);
}

// Closes the gate before anything can be waited for: there is no driver yet, or cuInit was not
// called. True: done, or failed (report). False: meanwhile the driver came to life.
bool freeze_unused(uint64_t deadline_ms, bool (*unused)(), DeviceReport* report) {
  GateHolder holder;
  if (!close_gate(deadline_ms, &holder)) {
    report->fail(kExitTimeout, "thread %d is inside %s", holder.tid,
                 function_name(holder.function));
    return true;
  }
  if (unused()) return true;
  gate_open();
  return false;
}

bool not_loaded() { return !realm_loaded(); }
// A thread can have been inside cuInit when we asked first.
bool not_initialised() { return !(machine_facts.initialised = learn_machine(&machine_facts)); }

// With the gate closed: calls that have returned, of which the driver still owes something.
bool has_open_ends(Culprit* culprit) {
  if (captures_active)
    format(culprit->text, sizeof culprit->text, "a stream capture is in progress (stream %p)",
           reinterpret_cast<void*>(capture_latest));
  else if (ipc_fetching())
    copy(culprit->text, sizeof culprit->text,
         "a thread waits for memory of another process (cuIpcOpenMemHandle)");
  else if (link_reports_later())
    copy(culprit->text, sizeof culprit->text,
         "a linker session (cuLinkCreate) that reports into the program's memory is open");
  else
    return false;
  return true;
}

enum class Frozen { kYes, kNotNow, kFailed };  // kFailed: the report says why

// Closes the gate, and opens it again unless the devices are idle behind it. Not now: `culprit` or
// `locked` says why. `start`: of the whole freeze, in microseconds.
Frozen freeze_once(uint64_t start, uint64_t gate_until, Culprit* culprit, const char** locked,
                   DeviceReport* report) {
  const uint64_t closing = sys::now_us();
  GateHolder holder = {};
  if (!close_gate(gate_until, &holder)) {
    // A thread that waits for the device: what it waits for is the better name.
    bool busy = find_busy(culprit);
    size_t used = busy ? length(culprit->text) : 0;
    format(culprit->text + used, sizeof culprit->text - used, "%sthread %d is inside %s",
           busy ? "; " : "", holder.tid, function_name(holder.function));
    return Frozen::kNotNow;
  }
  const auto open_again = [](Frozen frozen) {
    gate_open();
    return frozen;
  };
  if (has_open_ends(culprit)) return open_again(Frozen::kNotNow);
  if (!wait_contexts(gate_until, false, culprit, report))
    return open_again(report->code ? Frozen::kFailed : Frozen::kNotNow);
  if (!print_pending()) {
    *locked = "a thread had standard output locked, where what kernels print is due";
    return open_again(Frozen::kNotNow);
  }
  pools_finish_frees();
  report->idle_us = closing - start;
  report->gate_us = sys::now_us() - closing;
  // Again: when it was asked first, a thread may have been in the middle of cuInit.
  learn_machine(&machine_facts);
  return check_refusals(report) && learn_state(report) ? Frozen::kYes : open_again(Frozen::kFailed);
}

}  // namespace

const char* changed_since_freeze() {
  if (realm_loaded() != at_freeze.loaded) return "a thread loaded the driver at that moment";
  const StrayIoctls stray = realm_stray_ioctls();
  if (stray.count == at_freeze.stray_ioctls) return nullptr;
  static char text[160];
  format(text, sizeof text,
         "thread %d called the driver past the gate (by a private table of cuGetExportTable; ioctl "
         "0x%x)",
         stray.thread, stray.request);
  return text;
}

bool hold_first_call(uint64_t deadline_ms, DeviceReport* report) {
  report->code = kExitOk;
  return freeze_unused(deadline_ms, not_loaded, report) && report->code == kExitOk;
}

bool freeze(uint64_t gate_ms, uint64_t deadline_ms, DeviceReport* report) {
  report->code = kExitOk;
  while (not_loaded())
    if (freeze_unused(deadline_ms, not_loaded, report)) return report->code == kExitOk;
  report->active = true;
  gate_bypass_this_thread();
  CUprocessState state;  // locked, every other call would wait
  if (present(real().cuCheckpointProcessGetState) &&
      real().cuCheckpointProcessGetState(sys::getpid(), &state) == CUDA_SUCCESS &&
      state != CU_PROCESS_STATE_RUNNING)
    return report->fail(kExitRefused,
                        "cuCheckpointProcessLock: the driver's own checkpoint has the process");
  uint64_t start = sys::now_us();
  Culprit culprit;
  while (not_initialised())
    if (freeze_unused(deadline_ms, not_initialised, report)) return report->code == kExitOk;
  if (stepping() && !step_finish(deadline_ms * 1000))
    return report->fail(kExitTimeout, "the program made only %lu of the calls it was to make",
                        static_cast<unsigned long>(step_count()));
  uint64_t pause_ms = 10;
  const char* locked = "";
  do {
    if (!check_refusals(report)) return false;
    uint64_t soft = now_ms() + 2000;
    if (soft > deadline_ms) soft = deadline_ms;
    wait_contexts(soft, true, &culprit, report);
    if (report->code) return false;

    uint64_t gate_until = now_ms() + gate_ms;
    if (gate_until > deadline_ms) gate_until = deadline_ms;
    const Frozen frozen = freeze_once(start, gate_until, &culprit, &locked, report);
    if (frozen != Frozen::kNotNow) return frozen == Frozen::kYes;
    if (now_ms() + pause_ms < deadline_ms) sys::sleep_us(pause_ms * 1000);
    pause_ms = pause_ms < 500 ? pause_ms * 2 : 500;
  } while (now_ms() < deadline_ms);
  return report->fail(kExitTimeout, "not idle before the deadline: %s%s%s", culprit.text,
                      *culprit.text && *locked ? "; " : "", locked);
}

namespace {

void learn_identity(DeviceFacts* facts, int device) {
  int major = 0, minor = 0;
  real().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  real().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  facts->capability = major * 10 + minor;
  CUuuid uuid = {};
  if (real().cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return;
  auto byte = [&](int i) { return static_cast<unsigned>(static_cast<uint8_t>(uuid.bytes[i])); };
  size_t used = 0, room = sizeof facts->uuid;
  used += format(facts->uuid, room, "GPU-");
  for (int i = 0; i < 16; ++i)
    used += format(facts->uuid + used, room - used, "%s%02x",
                   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", byte(i));
}

}  // namespace

bool learn_machine(MachineFacts* facts) {
  *facts = {};
  int count = 0;
  if (!realm_loaded() || real().cuDeviceGetCount(&count) != CUDA_SUCCESS) return false;
  facts->initialised = true;
  facts->devices = count < kMaxDevices ? count : kMaxDevices;
  real().cuDriverGetVersion(&facts->driver_version);
  for (int i = 0; i < facts->devices; ++i) {
    size_t total = 0;
    real().cuDeviceGetName(facts->device[i].name, sizeof facts->device[i].name, i);
    real().cuDeviceTotalMem_v2(&total, i);
    facts->device[i].total_memory = total;
    learn_identity(&facts->device[i], i);
  }
  return true;
}

CUcontext any_context(int device) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kContext) continue;
    auto* context = static_cast<ContextObject*>(o);
    if (context->alive && context->device == device)
      return real_of<CUcontext>(Kind::kContext, context->name);
  }
  return nullptr;
}

// ---- what replay needs and only the driver knows ----

namespace {

void learn_context(ContextObject* context) {
  context->limits_known = 0;
  for (int limit = 0; limit < 16 && limit < CU_LIMIT_MAX; ++limit)
    if (real().cuCtxGetLimit(&context->limits[limit], static_cast<CUlimit>(limit)) == CUDA_SUCCESS)
      context->limits_known |= 1u << limit;
  CUfunc_cache cache;
  context->cache_config = real().cuCtxGetCacheConfig(&cache) == CUDA_SUCCESS ? cache : -1;
  unsigned flags = 0;
  context->flags_now = real().cuCtxGetFlags(&flags) == CUDA_SUCCESS ? static_cast<long>(flags) : -1;
  int active = 0;
  if (context->primary &&
      real().cuDevicePrimaryCtxGetState(context->device, &flags, &active) == CUDA_SUCCESS)
    context->flags = flags;
}

// Every event's time on its context's clock, which reads `next_base_ms` now.
bool learn_events(ContextObject* context) {
  bool any = false;
  for (Object* o = registry().first(); o && !any; o = o->next)
    any = o->type == ObjectType::kEvent && o->context == context->name;
  if (!any) return true;
  CUevent now = nullptr;
  CUstream stream = nullptr;
  bool ok = real().cuEventCreate(&now, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
            real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
            real().cuEventRecord(now, stream) == CUDA_SUCCESS &&
            real().cuStreamSynchronize(stream) == CUDA_SUCCESS;
  CUresult result;
  context->next_base_ms = 0;
  bool based = ok && event_time(context->name, now, &context->next_base_ms, &result);
  for (Object* o = registry().first(); o && ok; o = o->next) {
    if (o->type != ObjectType::kEvent || o->context != context->name) continue;
    auto* event = static_cast<EventObject*>(o);
    if (event->remembered) continue;
    float before = 0;
    event->timed = event->recorded = false;
    auto handle = real_of<CUevent>(Kind::kEvent, event->name);
    if (real().cuEventElapsedTime(&before, handle, now) != CUDA_SUCCESS) continue;
    event->timed = event->recorded = true;
    event->at_ms = (based ? context->next_base_ms : 0) - static_cast<double>(before);
  }
  if (now) real().cuEventDestroy_v2(now);
  if (stream) real().cuStreamDestroy_v2(stream);
  return ok;
}

}  // namespace

bool learn_state(DeviceReport* report) {
  Vector<uint64_t> contexts;
  live_contexts(&contexts);
  for (uint64_t name : contexts) {
    WithContext with(name);
    MutexLock guard(registry().lock);
    ContextObject* context = registry().context(name);
    if (!with || !context) return report->fail(kExitError, "a context cannot be made current");
    learn_context(context);
    if (!learn_events(context))
      return report->fail(kExitError, "the times of events cannot be read from the driver");
  }
  return learn_globals(report) && learn_arrays(report) && learn_graphs(report);
}

namespace {

void describe_range(JsonWriter* json, uint64_t begin, uint64_t bytes) {
  json->key("address").address(begin);
  json->member("bytes", bytes);
}

void describe_allocations(JsonWriter* json, DeviceMemory* memory) {
  MutexLock guard(memory->lock);
  for (Allocation* a = memory->arena.first(); a; a = memory->arena.next(a)) {
    json->begin_object();
    describe_range(json, a->begin, a->size);
    json->member("site", uint64_t{a->site});
    json->member("kind", a->pool ? "pool" : "device");
    json->end_object();
  }
}

void describe_one_device(JsonWriter* json, int i) {
  DeviceMemory* memory = device_memory(i);
  json->begin_object();
  json->member("name", machine_facts.device[i].name);
  json->member("ordinal", i);
  json->member("total_bytes", machine_facts.device[i].total_memory);
  json->member("used_bytes", memory ? memory->arena.committed_bytes() : 0);
  json->key("reservations").begin_array();
  for (size_t r = 0; memory && r < memory->backing.reservations.size(); ++r) {
    json->begin_object();
    describe_range(json, memory->backing.reservations[r].begin,
                   memory->backing.reservations[r].size);
    json->end_object();
  }
  json->end_array();
  json->key("allocations").begin_array();
  if (memory) describe_allocations(json, memory);
  json->end_array();
  json->end_object();
}

// With the registry's lock.
void describe_variables(JsonWriter* json) {
  json->key("variables").begin_array();
  for (Object* o = registry().first(); o; o = o->next) {
    Vector<Global>* globals = o->dead ? nullptr : globals_of(o);
    if (!globals) continue;
    for (Global& g : *globals) {
      json->begin_object();
      json->member("name", g.symbol);
      describe_range(json, g.address, g.size);
      json->end_object();
    }
  }
  json->end_array();
}

// With the registry's lock. What has no name here is part of something else that is counted.
void describe_objects(JsonWriter* json) {
  const char* const names[] = {"contexts",
                               "streams",
                               "events",
                               "modules",
                               "libraries",
                               nullptr,
                               nullptr,
                               "kernels",
                               "functions",
                               "pools",
                               "graphs",
                               "executable_graphs",
                               "arrays",
                               "mipmaps",
                               "textures",
                               "surfaces",
                               "texture_references",
                               "surface_references",
                               nullptr,
                               nullptr,
                               nullptr,
                               "green_contexts",
                               "links",
                               "notifications",
                               "log_callbacks",
                               "user_objects",
                               nullptr};
  static_assert(sizeof names / sizeof *names == static_cast<size_t>(ObjectType::kCount));
  uint64_t counts[static_cast<size_t>(ObjectType::kCount)] = {};
  for (Object* o = registry().first(); o; o = o->next)
    if (!o->dead) ++counts[static_cast<size_t>(o->type)];
  json->key("objects").begin_object();
  for (size_t i = 0; i < static_cast<size_t>(ObjectType::kCount); ++i)
    if (names[i]) json->member(names[i], counts[i]);
  json->end_object();
}

}  // namespace

void describe_device(GrowingText* to) {
  JsonWriter json(to);
  json.begin_object();
  json.member("format", uint64_t{kDeviceBlobFormat});
  json.member("driver_version", machine_facts.driver_version);
  if (stepping()) json.member("steps", step_count());
  json.key("devices").begin_array();
  for (int i = 0; i < machine_facts.devices; ++i) describe_one_device(&json, i);
  json.end_array();
  json.key("sites");
  describe_call_sites(&json);
  json.member("pinned_bytes", pinned_bytes());
  {
    MutexLock guard(registry().lock);
    describe_variables(&json);
    describe_objects(&json);
  }
  json.end_object();
}

}  // namespace device
}  // namespace gpuckpt
