// Replay: makes in a fresh driver what the registry lists, in the order of creation, under the old
// names, and checks that every address the GPU or the program may hold is the old one. Runs with
// the gate closed.
#include "base/text/log.h"
#include "base/text/text.h"
#include "device/arena/vmm.h"
#include "device/base/gpu_map.h"
#include "device/base/jit_options.h"
#include "device/base/times.h"
#include "device/capture/capture.h"
#include "device/modules/links.h"
#include "device/modules/references.h"
#include "device/objects/arrays.h"
#include "device/objects/graphs.h"
#include "device/objects/green_contexts.h"
#include "device/objects/notifications.h"
#include "device/replay/upload.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/doors/doors.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt::device {
namespace {

const char* error_name(CUresult result) {
  const char* name = nullptr;
  return real().cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

bool cannot(DeviceReport* report, const char* what, CUresult result) {
  return report->fail(kExitIncompatible, "%s cannot be made again: %s (%d)", what,
                      error_name(result), static_cast<int>(result));
}

bool compare_device(int i, const DeviceFacts& there, const DeviceFacts& here,
                    DeviceReport* report) {
  if (!equal(here.name, there.name))
    return report->fail(kExitIncompatible, "device %d was a %s, here it is a %s", i, there.name,
                        here.name);
  if (here.capability != there.capability)
    return report->fail(
        kExitIncompatible, "device %d had compute capability %d.%d, here it has %d.%d", i,
        there.capability / 10, there.capability % 10, here.capability / 10, here.capability % 10);
  if (here.total_memory < there.total_memory)
    return report->fail(kExitIncompatible, "device %d had %lu bytes of memory, here it has %lu", i,
                        static_cast<unsigned long>(there.total_memory),
                        static_cast<unsigned long>(here.total_memory));
  return true;
}

bool compare_machine(const char* mapped, DeviceReport* report) {
  MachineFacts here;
  if (!learn_machine(&here))
    return report->fail(kExitIncompatible, "the driver cannot be initialised here");
  const MachineFacts& there = machine_facts;
  if (here.driver_version != there.driver_version)
    return report->fail(kExitIncompatible,
                        "the snapshot was made with driver API %d, here it is %d",
                        there.driver_version, here.driver_version);
  if (here.devices < there.devices)
    return report->fail(kExitIncompatible, "the snapshot needs %d devices, here are %d%s%s",
                        there.devices, here.devices,
                        mapped ? ": there is no such device as in --gpu-map " : "",
                        mapped ? mapped : "");
  for (int i = 0; i < there.devices; ++i)
    if (!compare_device(i, there.device[i], here.device[i], report)) return false;
  return true;
}

// Real drivers make the primary contexts of all devices here.
CUresult initialise() {
  RealmRecording recording(&places_of_init);
  return real().cuInit(0);
}

CUresult make_context(ContextObject* c, CUcontext* now) {
  RealmRecording recording(&c->places);  // its blocks at their old addresses
  auto* create = c->first_api ? real().cuCtxCreate : real().cuCtxCreate_v2;
  if (!c->primary) return create(now, c->flags, c->device);
  real().cuDevicePrimaryCtxSetFlags_v2(c->device, c->flags);
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < (c->retained ? c->retained : 1) && result == CUDA_SUCCESS; ++i)
    result = real().cuDevicePrimaryCtxRetain(now, c->device);
  return result;
}

// The program's own calls are translated. A runtime that has been given one of the driver's private
// tables hands contexts over untranslated: they must be the same.
bool compare_context(const ContextObject* c, uint64_t now, DeviceReport* report) {
  if (now == c->name) return true;
  log_line(LogLevel::kInfo, "restore: the context 0x%lx of device %d is 0x%lx now: translated",
           c->name, c->device, now);
  if (!export_tables_given()) return true;
  return report->fail(
      kExitIncompatible,
      "the context 0x%lx of device %d would be 0x%lx after the restore, and the program's CUDA "
      "runtime holds the old value (cuGetExportTable)",
      c->name, c->device, now);
}

bool set_attributes(CUstream now, const Vector<CUlaunchAttribute>& attributes,
                    DeviceReport* report) {
  for (const CUlaunchAttribute& a : attributes) {
    CUresult result = real().cuStreamSetAttribute(now, a.id, &a.value);
    if (result != CUDA_SUCCESS) return cannot(report, "an attribute of a stream", result);
  }
  return true;
}

bool replay_context(ContextObject* c, DeviceReport* report) {
  if (!c->alive) return true;
  CUcontext now = nullptr;
  CUresult result = make_context(c, &now);
  CUcontext ignored;
  if (result == CUDA_SUCCESS && !c->primary) real().cuCtxPopCurrent_v2(&ignored);
  if (result != CUDA_SUCCESS) return cannot(report, "a context", result);
  if (!compare_context(c, bits(now), report)) return false;
  bind(Kind::kContext, c->name, bits(now));
  WithContext with(now);
  for (int limit = 0; limit < 16; ++limit) {
    if (!(c->limits_known & (1u << limit))) continue;
    size_t have = 0;
    result = real().cuCtxGetLimit(&have, static_cast<CUlimit>(limit));
    if (result == CUDA_SUCCESS && have != c->limits[limit])
      result = real().cuCtxSetLimit(static_cast<CUlimit>(limit), c->limits[limit]);
    if (result != CUDA_SUCCESS) return cannot(report, "a limit of a context", result);
  }
  if (c->cache_config > 0) real().cuCtxSetCacheConfig(static_cast<CUfunc_cache>(c->cache_config));
  unsigned flags = 0;
  if (c->flags_now >= 0 && real().cuCtxGetFlags(&flags) == CUDA_SUCCESS && flags != c->flags_now)
    result = real().cuCtxSetFlags(static_cast<unsigned>(c->flags_now));
  if (result != CUDA_SUCCESS) return cannot(report, "the flags of a context", result);
  CUcontext same = nullptr;
  for (int i = 0; i < c->attached && result == CUDA_SUCCESS; ++i)
    result = real().cuCtxAttach(&same, 0);
  if (result != CUDA_SUCCESS) return cannot(report, "a use of a context", result);
  return set_attributes(CU_STREAM_LEGACY, c->legacy_attributes, report);
}

// The event that stands for now, on a stream that is gone afterwards.
bool replay_clock(ContextObject* c) {
  if (!c->alive) return true;
  WithContext with(c->name);
  CUevent base = nullptr;
  CUstream stream = nullptr;
  bool ok = with && real().cuEventCreate(&base, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
            real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
            real().cuEventRecord(base, stream) == CUDA_SUCCESS &&
            real().cuStreamSynchronize(stream) == CUDA_SUCCESS;
  if (stream) real().cuStreamDestroy_v2(stream);
  c->time_base = bits(base);
  c->time_base_generation = generation();
  c->time_base_ms = c->next_base_ms;
  return ok;
}

bool replay_stream(StreamObject* s, DeviceReport* report) {
  WithContext with(s->green ? converted_of_green(s->green) : s->context);
  CUstream now = nullptr;
  CUresult result = real().cuStreamCreateWithPriority(&now, s->flags, s->priority);
  if (result != CUDA_SUCCESS) return cannot(report, "a stream", result);
  bind(Kind::kStream, s->name, bits(now));
  return set_attributes(now, s->attributes, report);
}

bool replay_event(EventObject* e, DeviceReport* report) {
  WithContext with(e->context);
  CUevent now = nullptr;
  CUresult result = real().cuEventCreate(&now, e->flags);
  if (result != CUDA_SUCCESS) return cannot(report, "an event", result);
  bind(Kind::kEvent, e->name, bits(now));
  if (e->recorded) e->remembered = true;
  if (e->remembered) ++remembered_events;
  return true;
}

CUresult load_module(ModuleObject* m, CUmodule* now) {
  WithContext with(m->context);
  JitOptions options(m->options);
  return real().cuModuleLoadDataEx(now, m->image->code(), options.count, options.keys,
                                   options.values);
}

CUresult load_library(LibraryObject* l, CUlibrary* now) {
  JitOptions options(l->options);
  CUlibraryOption keys[8];
  void* values[8];
  unsigned count = 0;
  for (const Option& o : l->library_options) {
    if (count == 8) break;
    keys[count] = static_cast<CUlibraryOption>(o.key);
    values[count++] = reinterpret_cast<void*>(o.value);
  }
  return real().cuLibraryLoadData(now, l->image->code(), options.keys, options.values,
                                  options.count, keys, values, count);
}

// Loads of modules that are gone by now are repeated, and their unloads, because what follows lies
// beside them.
struct Gone {
  HashMap<uint64_t> handles;  // Object* -> the driver's handle of this replay
};

bool replay_module(ModuleObject* m, Gone* gone, DeviceReport* report) {
  CUmodule now = nullptr;
  CUresult result;
  // Threads may have loaded modules at the same time: in the order of the driver, not of the
  // records.
  if (!m->globals.empty()) realm_expect_at(m->globals[0].address);
  if (m->image) {
    result = load_module(m, &now);
  } else {
    WithContext with(m->context);
    result = real().cuLibraryGetModule(&now, real_of<CUlibrary>(Kind::kLibrary, m->library));
  }
  if (result != CUDA_SUCCESS) return cannot(report, "a module", result);
  if (m->dead)
    gone->handles.put(bits(m), bits(now));
  else
    bind(Kind::kModule, m->name, bits(now));
  return true;
}

bool replay_library(LibraryObject* l, Gone* gone, DeviceReport* report) {
  CUlibrary now = nullptr;
  CUresult result = load_library(l, &now);
  if (result != CUDA_SUCCESS) return cannot(report, "a library", result);
  if (l->dead)
    gone->handles.put(bits(l), bits(now));
  else
    bind(Kind::kLibrary, l->name, bits(now));
  return true;
}

void replay_unload(Tombstone* u, Gone* gone) {
  uint64_t* handle = gone->handles.find(bits(u->target));
  if (!handle) return;
  if (u->target->type == ObjectType::kModule) {
    WithContext with(u->target->context);
    real().cuModuleUnload(reinterpret_cast<CUmodule>(*handle));
  } else {
    real().cuLibraryUnload(reinterpret_cast<CUlibrary>(*handle));
  }
}

// A library's module comes into being at its first use in a context: here, in the old order.
void replay_instance(InstanceObject* i, Gone* gone) {
  WithContext with(i->context);
  LibraryObject* l = i->library;
  uint64_t* old = l->dead ? gone->handles.find(bits(l)) : nullptr;
  CUmodule ignored;
  if (!with || (l->dead && !old)) return;
  real().cuLibraryGetModule(&ignored, old ? reinterpret_cast<CUlibrary>(*old)
                                          : real_of<CUlibrary>(Kind::kLibrary, l->name));
}

// What cannot be loaded now says so when it is launched.
void replay_use(UseObject* u) {
  WithContext with(u->context);
  const Kind kind = u->kernel ? Kind::kKernel : Kind::kFunction;
  const uint64_t name = u->kernel ? u->kernel : u->function;
  if (!with || !name_bound(kind, name)) return;
  load_code(u->kernel ? nullptr : real_of<CUfunction>(kind, name),
            u->kernel ? real_of<CUkernel>(kind, name) : nullptr);
}

bool replay_kernel(KernelObject* k, DeviceReport* report) {
  CUkernel now = nullptr;
  CUresult result =
      real().cuLibraryGetKernel(&now, real_of<CUlibrary>(Kind::kLibrary, k->library), k->symbol);
  if (result != CUDA_SUCCESS) return cannot(report, k->symbol, result);
  bind(Kind::kKernel, k->name, bits(now));
  bind(Kind::kFunction, k->name, bits(now));  // a CUkernel may stand for a CUfunction
  return true;
}

bool replay_settings(KernelObject* k, DeviceReport* report) {
  auto now = real_of<CUkernel>(Kind::kKernel, k->name);
  CUresult result = CUDA_SUCCESS;
  for (const Setting& s : k->settings) {
    if (s.key == kCacheConfig)
      result = real().cuKernelSetCacheConfig(now, static_cast<CUfunc_cache>(s.value), s.device);
    else if (s.device >= 0)
      result = real().cuKernelSetAttribute(static_cast<CUfunction_attribute>(s.key), s.value, now,
                                           s.device);
    else
      result = real().cuFuncSetAttribute(reinterpret_cast<CUfunction>(now),
                                         static_cast<CUfunction_attribute>(s.key), s.value);
    if (result != CUDA_SUCCESS) return cannot(report, k->symbol, result);
  }
  return true;
}

const char* symbol_of(const FunctionObject* f) {
  return f->symbol ? f->symbol : "a kernel's function";
}

bool replay_function(FunctionObject* f, DeviceReport* report) {
  WithContext with(f->context);
  CUfunction now = nullptr;
  const char* symbol = symbol_of(f);
  CUresult result =
      f->kernel ? real().cuKernelGetFunction(&now, real_of<CUkernel>(Kind::kKernel, f->kernel))
                : real().cuModuleGetFunction(&now, real_of<CUmodule>(Kind::kModule, f->module),
                                             f->symbol);
  if (result != CUDA_SUCCESS) return cannot(report, symbol, result);
  bind(Kind::kFunction, f->name, bits(now));
  return true;
}

bool replay_settings(FunctionObject* f, DeviceReport* report) {
  WithContext with(f->context);
  auto now = real_of<CUfunction>(Kind::kFunction, f->name);
  const char* symbol = symbol_of(f);
  CUresult result = CUDA_SUCCESS;
  for (const Setting& s : f->settings) {
    result =
        s.key == kCacheConfig
            ? real().cuFuncSetCacheConfig(now, static_cast<CUfunc_cache>(s.value))
            : real().cuFuncSetAttribute(now, static_cast<CUfunction_attribute>(s.key), s.value);
    if (result != CUDA_SUCCESS) return cannot(report, symbol, result);
  }
  if (f->launch) result = replay_launch_state(now, *f->launch);
  return result == CUDA_SUCCESS || cannot(report, symbol, result);
}

bool replay_pool(PoolObject* p, DeviceReport* report) {
  CUmemoryPool now = nullptr;
  CUresult result = p->standard ? real().cuDeviceGetDefaultMemPool(&now, p->device)
                                : real().cuMemPoolCreate(&now, &p->properties);
  if (result != CUDA_SUCCESS) return cannot(report, "a memory pool", result);
  bind(Kind::kPool, p->name, bits(now));
  uint64_t threshold = p->threshold;
  if (threshold)
    result = real().cuMemPoolSetAttribute(now, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  for (int i = 0; i < 3 && result == CUDA_SUCCESS; ++i) {
    if (p->reuse[i]) continue;
    int off = 0;
    result = real().cuMemPoolSetAttribute(
        now, static_cast<CUmemPool_attribute>(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES + i),
        &off);
  }
  if (p->current && result == CUDA_SUCCESS) result = real().cuDeviceSetMemPool(p->device, now);
  for (int reader : p->readers) {
    CUmemAccessDesc access = {};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {reader}};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (result == CUDA_SUCCESS) result = real().cuMemPoolSetAccess(now, &access, 1);
  }
  return result == CUDA_SUCCESS || cannot(report, "a setting of a memory pool", result);
}

bool replay_contexts(DeviceReport* report) {
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kContext && !replay_context(static_cast<ContextObject*>(o), report))
      return false;
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kContext || !static_cast<ContextObject*>(o)->alive) continue;
    WithContext with(o->name);
    for (uint64_t peer : static_cast<ContextObject*>(o)->peers) {
      CUresult result = real().cuCtxEnablePeerAccess(real_of<CUcontext>(Kind::kContext, peer), 0);
      if (result != CUDA_SUCCESS) return cannot(report, "peer access between devices", result);
    }
  }
  return true;
}

bool replay_objects(DeviceReport* report) {
  Gone gone;
  remembered_events = 0;
  for (Object* o = registry().first(); o; o = o->next) {
    bool ok = true;
    switch (o->type) {
      case ObjectType::kStream:
        ok = replay_stream(static_cast<StreamObject*>(o), report);
        break;
      case ObjectType::kEvent:
        ok = ipc_opened_event(o->name) || replay_event(static_cast<EventObject*>(o), report);
        break;
      case ObjectType::kModule:
        ok = replay_module(static_cast<ModuleObject*>(o), &gone, report);
        break;
      case ObjectType::kLibrary:
        ok = replay_library(static_cast<LibraryObject*>(o), &gone, report);
        break;
      case ObjectType::kInstance:
        replay_instance(static_cast<InstanceObject*>(o), &gone);
        break;
      case ObjectType::kUse:
        replay_use(static_cast<UseObject*>(o));
        break;
      case ObjectType::kTombstone:
        replay_unload(static_cast<Tombstone*>(o), &gone);
        break;
      case ObjectType::kKernel:
        ok = replay_kernel(static_cast<KernelObject*>(o), report);
        break;
      case ObjectType::kFunction:
        ok = replay_function(static_cast<FunctionObject*>(o), report);
        break;
      case ObjectType::kPool:
        ok = replay_pool(static_cast<PoolObject*>(o), report);
        break;
      case ObjectType::kContext:
        ok = replay_clock(static_cast<ContextObject*>(o)) ||
             report->fail(kExitIncompatible, "the clock of a context cannot be started");
        break;
      case ObjectType::kLink:
        ok = replay_link(static_cast<LinkObject*>(o), report);
        break;
      case ObjectType::kNotification:
      case ObjectType::kLogCallback:
        ok = replay_notification(static_cast<NotificationObject*>(o), report);
        break;
      case ObjectType::kTextureReference:
      case ObjectType::kSurfaceReference:
        ok = replay_reference(static_cast<ReferenceObject*>(o), report);
        break;
      case ObjectType::kResource:
        ok = replay_resource(static_cast<ResourceObject*>(o), report);
        break;
      case ObjectType::kSplit:
        ok = replay_split(static_cast<SplitObject*>(o), report);
        break;
      case ObjectType::kResourceDesc:
        ok = replay_resource_desc(static_cast<ResourceDescObject*>(o), report);
        break;
      case ObjectType::kGreenContext:
        ok = replay_green(static_cast<GreenObject*>(o), report);
        break;
      case ObjectType::kUserObject:  // with the graphs that hold it
      case ObjectType::kGraph:       // after everything else
      case ObjectType::kGraphExec:
      case ObjectType::kArray:
      case ObjectType::kMipmap:
      case ObjectType::kTexture:
      case ObjectType::kSurface:
      case ObjectType::kCount:
        break;
    }
    if (!ok) return false;
  }
  return true;
}

// After everything is placed: a setting of a kernel may make its library's module.
bool replay_all_settings(DeviceReport* report) {
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type == ObjectType::kKernel && !replay_settings(static_cast<KernelObject*>(o), report))
      return false;
    if (o->type == ObjectType::kFunction &&
        !replay_settings(static_cast<FunctionObject*>(o), report))
      return false;
  }
  return true;
}

template <typename F>
bool each_global(F f) {
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->dead || (o->type != ObjectType::kModule && o->type != ObjectType::kLibrary)) continue;
    bool library = o->type == ObjectType::kLibrary;
    auto& globals =
        library ? static_cast<LibraryObject*>(o)->globals : static_cast<ModuleObject*>(o)->globals;
    for (Global& g : globals) {
      ContextObject* context = registry().context(g.context);
      if (context && context->alive && !f(o, library, g, context->device)) return false;
    }
  }
  return true;
}

// A pointer to a variable may lie anywhere in the program's memory: it must still be right.
bool compare_globals(DeviceReport* report) {
  uint64_t moved = 0;
  each_global([&](Object* o, bool library, Global& g, int) {
    WithContext with(g.context);
    CUdeviceptr address = 0;
    size_t size = 0;
    auto* ask = g.managed ? real().cuLibraryGetManaged : real().cuLibraryGetGlobal;
    CUresult result =
        library ? ask(&address, &size, real_of<CUlibrary>(Kind::kLibrary, o->name), g.symbol)
                : real().cuModuleGetGlobal_v2(&address, &size,
                                              real_of<CUmodule>(Kind::kModule, o->name), g.symbol);
    if (result == CUDA_SUCCESS && address == g.address && size == g.size) return true;
    log_line(LogLevel::kDebug, "restore: variable %s of %s 0x%lx, %lu bytes: 0x%lx, now 0x%lx",
             g.symbol, library ? "library" : "module", o->name, g.size, g.address,
             static_cast<unsigned long>(address));
    if (moved++) return true;
    report->fail(kExitIncompatible,
                 "variable %s was at 0x%lx and is at 0x%lx after the restore (%s); pointers to it "
                 "would be wrong",
                 g.symbol, g.address, static_cast<unsigned long>(address), error_name(result));
    return true;
  });
  return !moved;
}

bool upload_managed(const Global& g, DeviceReport* report) {
  WithContext with(g.context);
  CUresult result = g.size ? real().cuMemcpyHtoD_v2(g.address, g.contents, g.size) : CUDA_SUCCESS;
  return result == CUDA_SUCCESS || cannot(report, g.symbol, result);
}

bool upload_all(RestoreSource* source, DeviceReport* report) {
  Vector<UploadTarget> targets;
  Vector<VmmExtent> mapped;
  bool kept = true;
  for (int device = 0; device < machine_facts.devices; ++device) {
    DeviceMemory* memory = device_memory(device);
    if (!memory) continue;
    report->allocations += memory->arena.count();
    for (Chunk* c = memory->arena.first_chunk(); c; c = memory->arena.next_chunk(c))
      kept &= targets.push({c->begin, c->size});
    vmm_extents(device, &mapped);
  }
  for (const VmmExtent& e : mapped) kept &= targets.push({e.address, e.size});
  each_global([&](Object*, bool, Global& g, int) {
    if (!g.managed && g.size) kept &= targets.push({g.address, g.size});
    return true;
  });
  if (!kept) return report->fail(kExitError, "no host memory to list the device's memory");
  if (!upload_contents(source, &targets, report)) return false;
  vmm_relock();
  return each_global(
      [&](Object*, bool, Global& g, int) { return !g.managed || upload_managed(g, report); });
}

// A thread's first entry into the driver of a new generation: its stack of current contexts, bottom
// first.
void establish(ThreadRecord* thread) {
  for (uint32_t i = 0; i < thread->context_count; ++i) {
    uint64_t name = bits(thread->context[i]);
    if (name && name_bound(Kind::kContext, name))
      real().cuCtxPushCurrent_v2(real_of<CUcontext>(Kind::kContext, name));
  }
}

}  // namespace

bool restore(RestoreSource* source, DeviceReport* report) {
  gate_bypass_this_thread();
  *report = {};
  gate_establish = establish;
  captures_active = 0;
  stage_forget();
  if (machine_facts.initialised) {
    uint64_t bytes;
    auto* mapped =
        static_cast<const char*>(source->blob ? source->blob(source, "gpu_map", &bytes) : nullptr);
    if (mapped && !apply_gpu_map(mapped, report)) return false;
    const CUresult result = initialise();
    if (result != CUDA_SUCCESS)
      return report->fail(kExitIncompatible, "cuInit fails here: %s (%d)", error_name(result),
                          static_cast<int>(result));
    if (!compare_machine(mapped, report) || !replay_contexts(report) ||
        !rebuild_device_memory(report) || !ipc_offer_again(report) || !rebuild_opened(report) ||
        !rebuild_vmm(report) || !share_pools_again(report) || !replay_objects(report) ||
        !replay_all_settings(report) || !replay_shared_events(report) || !rebuild_pinned(report) ||
        !replay_sync_memops(report) || !compare_globals(report) || !replay_arrays(report) ||
        !replay_reference_settings(report) || !replay_graphs(report) || !upload_all(source, report))
      return false;
    if (!realm_release_placeholders())
      return report->fail(kExitIncompatible,
                          "the driver keeps addresses that it reserved where the program has "
                          "memory of its own");
  }
  handover_resume();
  if (!ipc_await_owners(report)) return false;
  gate_open();
  return true;
}

}  // namespace gpuckpt::device
