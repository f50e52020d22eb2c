// Streams and events. Whether an event was recorded, and when, is asked from the driver at snapshot
// time; after a restore the times before it are remembered here (see replay.cc).
#include "device/base/times.h"
#include "device/hooks/hooks.h"
#include "device/objects/graphs.h"
#include "device/objects/green_contexts.h"
#include "device/sharing/ipc.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {

uint32_t remembered_events;

namespace {

CUresult note_stream(CUresult result, CUstream* stream, unsigned flags, int priority) {
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kStream, *stream), context = current_context_name();
  uint64_t green = current_green_name();
  MutexLock guard(registry().lock);
  auto* object = registry().add<StreamObject>(ObjectType::kStream, name, context);
  if (object) {
    object->flags = flags;
    object->priority = priority;
    object->green = green;
  }
  return result;
}

// What a stream's attributes say is kept as set, the legacy stream's with its context. A thread's
// own default stream, and a green context's, has no place to keep it.
Vector<CUlaunchAttribute>* attributes_of(CUstream stream, bool per_thread) {
  if (!stream) stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (stream == CU_STREAM_PER_THREAD) return nullptr;
  if (stream == CU_STREAM_LEGACY) {
    if (current_green_name()) return nullptr;
    ContextObject* c = registry().context(current_context_name());
    return c ? &c->legacy_attributes : nullptr;
  }
  auto* object =
      registry().find<StreamObject>(ObjectType::kStream, name_from(Kind::kStream, stream));
  return object ? &object->attributes : nullptr;
}

void keep_attribute(CUstream stream, bool per_thread, CUstreamAttrID id,
                    const CUstreamAttrValue& value) {
  MutexLock guard(registry().lock);
  Vector<CUlaunchAttribute>* all = attributes_of(stream, per_thread);
  if (!all)
    return registry().refuse(
        "cuStreamSetAttribute: on a thread's own or a green context's default stream");
  for (CUlaunchAttribute& a : *all) {
    if (a.id != id) continue;
    a.value = value;
    return;
  }
  CUlaunchAttribute fresh = {};
  fresh.id = id;
  fresh.value = value;
  all->push(fresh);
}

CUresult note_attribute(CUresult result, CUstream stream, bool per_thread, CUstreamAttrID id,
                        const CUstreamAttrValue* value) {
  if (result == CUDA_SUCCESS) keep_attribute(stream, per_thread, id, *value);
  return result;
}

CUresult note_attributes(CUresult result, CUstream stream, bool per_thread) {
  if (result != CUDA_SUCCESS) return result;
  auto* ask = per_thread ? real().cuStreamGetAttribute_ptsz : real().cuStreamGetAttribute;
  for (CUstreamAttrID id :
       {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN}) {
    CUstreamAttrValue value = {};
    if (ask(stream, id, &value) == CUDA_SUCCESS) keep_attribute(stream, per_thread, id, value);
  }
  return result;
}

CUresult end_stream(CUstream stream, CUresult (*native)(CUstream)) {
  return registry().end(ObjectType::kStream, name_from(Kind::kStream, stream),
                        [&] { return native(stream); });
}

CUresult end_event(CUevent event, CUresult (*native)(CUevent)) {
  const uint64_t name = name_from(Kind::kEvent, event);
  bool remembered;
  {
    MutexLock guard(registry().lock);
    auto* object = registry().find<EventObject>(ObjectType::kEvent, name);
    remembered = object && object->remembered;
  }
  ipc_forget_event(name);
  CUresult result = registry().end(ObjectType::kEvent, name, [&] { return native(event); });
  if (result == CUDA_SUCCESS && remembered)
    __atomic_sub_fetch(&remembered_events, 1, __ATOMIC_RELAXED);
  return result;
}

// A record after the restore: the driver knows the time again.
inline void note_record(CUevent event, CUresult result) {
  if (__builtin_expect(__atomic_load_n(&remembered_events, __ATOMIC_RELAXED) == 0, 1)) return;
  if (result != CUDA_SUCCESS) return;
  MutexLock guard(registry().lock);
  auto* object = registry().find<EventObject>(ObjectType::kEvent, name_from(Kind::kEvent, event));
  if (!object || !object->remembered) return;
  object->remembered = false;
  __atomic_sub_fetch(&remembered_events, 1, __ATOMIC_RELAXED);
}

CUresult elapsed(float* ms, CUevent start, CUevent end,
                 CUresult (*native)(float*, CUevent, CUevent)) {
  if (__builtin_expect(__atomic_load_n(&remembered_events, __ATOMIC_RELAXED) == 0, 1))
    return native(ms, start, end);
  CUresult result;
  if (elapsed_across_restore(ms, start, end, &result)) return result;
  return native(ms, start, end);
}

CUresult note_capture_begun(CUresult result, CUstream stream) {
  if (result != CUDA_SUCCESS) return result;
  __atomic_add_fetch(&captures_active, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&capture_latest, name_from(Kind::kStream, stream), __ATOMIC_RELAXED);
  return result;
}

CUresult note_capture_ended(CUresult result, CUgraph* graph) {
  // It ends with an error, too (invalidated), unless there was none.
  bool none = result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_INVALID_HANDLE ||
              result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
              result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ||
              result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT;
  if (!none && __atomic_load_n(&captures_active, __ATOMIC_RELAXED))
    __atomic_sub_fetch(&captures_active, 1, __ATOMIC_RELAXED);
  if (result == CUDA_SUCCESS) {
    // Not asked for: it is the program's own graph (cuStreamBeginCaptureToGraph), known already.
    if (graph && *graph) note_graph(*graph);
  } else if (!none) {
    MutexLock guard(registry().lock);
    drop_pending_users();
  }
  return result;
}

}  // namespace

bool elapsed_across_restore(float* ms, CUevent start, CUevent end, CUresult* result) {
  MutexLock guard(registry().lock);
  Registry& all = registry();
  auto* from = all.find<EventObject>(ObjectType::kEvent, name_from(Kind::kEvent, start));
  auto* to = all.find<EventObject>(ObjectType::kEvent, name_from(Kind::kEvent, end));
  if (!from || !to || !(from->remembered || to->remembered)) return false;
  if (!ms) {
    *result = CUDA_ERROR_INVALID_VALUE;
    return true;
  }
  double at[2];
  EventObject* events[2] = {from, to};
  CUevent handles[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    if (events[i]->remembered) {
      if (!events[i]->timed) {
        *result = CUDA_ERROR_INVALID_HANDLE;  // made without timing
        return true;
      }
      at[i] = events[i]->at_ms;
      continue;
    }
    if (!event_time(events[i]->context, handles[i], &at[i], result)) return true;
  }
  *ms = static_cast<float>(at[1] - at[0]);
  *result = CUDA_SUCCESS;
  return true;
}

bool event_time(uint64_t context_name, CUevent event, double* at_ms, CUresult* result) {
  ContextObject* context = registry().context(context_name);
  if (!context || !context->time_base || context->time_base_generation != generation()) {
    *result = CUDA_ERROR_INVALID_HANDLE;
    return false;
  }
  float since = 0;
  auto* base = reinterpret_cast<CUevent>(context->time_base);
  *result = real().cuEventElapsedTime(&since, base, event);
  *at_ms = context->time_base_ms + static_cast<double>(since);
  return *result == CUDA_SUCCESS;
}

}  // namespace device

using namespace device;

CUresult hook_cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return note_stream(real().cuStreamCreate(phStream, Flags), phStream, Flags, 0);
}
CUresult hook_cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return note_stream(real().cuStreamCreateWithPriority(phStream, flags, priority), phStream, flags,
                     priority);
}
CUresult hook_cuStreamDestroy(CUstream hStream) {
  return end_stream(hStream, real().cuStreamDestroy);
}
CUresult hook_cuStreamDestroy_v2(CUstream hStream) {
  return end_stream(hStream, real().cuStreamDestroy_v2);
}

CUresult hook_cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                                   const CUstreamAttrValue* value) {
  return note_attribute(real().cuStreamSetAttribute(hStream, attr, value), hStream, false, attr,
                        value);
}
CUresult hook_cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr,
                                        const CUstreamAttrValue* value) {
  return note_attribute(real().cuStreamSetAttribute_ptsz(hStream, attr, value), hStream, true, attr,
                        value);
}
CUresult hook_cuStreamCopyAttributes(CUstream dst, CUstream src) {
  return note_attributes(real().cuStreamCopyAttributes(dst, src), dst, false);
}
CUresult hook_cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src) {
  return note_attributes(real().cuStreamCopyAttributes_ptsz(dst, src), dst, true);
}

CUresult hook_cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  CUresult result = real().cuEventCreate(phEvent, Flags);
  if (result != CUDA_SUCCESS) return result;
  uint64_t name = new_name(Kind::kEvent, *phEvent), context = current_context_name();
  MutexLock guard(registry().lock);
  auto* object = registry().add<EventObject>(ObjectType::kEvent, name, context);
  if (object) object->flags = Flags;
  return result;
}
CUresult hook_cuEventDestroy(CUevent hEvent) { return end_event(hEvent, real().cuEventDestroy); }
CUresult hook_cuEventDestroy_v2(CUevent hEvent) {
  return end_event(hEvent, real().cuEventDestroy_v2);
}

CUresult hook_cuEventRecord(CUevent hEvent, CUstream hStream) {
  CUresult result = real().cuEventRecord(hEvent, hStream);
  note_record(hEvent, result);
  return result;
}
CUresult hook_cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  CUresult result = real().cuEventRecord_ptsz(hEvent, hStream);
  note_record(hEvent, result);
  return result;
}
CUresult hook_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  CUresult result = real().cuEventRecordWithFlags(hEvent, hStream, flags);
  note_record(hEvent, result);
  return result;
}
CUresult hook_cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  CUresult result = real().cuEventRecordWithFlags_ptsz(hEvent, hStream, flags);
  note_record(hEvent, result);
  return result;
}
CUresult hook_cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd, real().cuEventElapsedTime);
}
CUresult hook_cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return elapsed(pMilliseconds, hStart, hEnd, real().cuEventElapsedTime_v2);
}

CUresult hook_cuStreamBeginCapture(CUstream hStream) {
  return note_capture_begun(real().cuStreamBeginCapture(hStream), hStream);
}
CUresult hook_cuStreamBeginCapture_ptsz(CUstream hStream) {
  return note_capture_begun(real().cuStreamBeginCapture_ptsz(hStream), hStream);
}
CUresult hook_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return note_capture_begun(real().cuStreamBeginCapture_v2(hStream, mode), hStream);
}
CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return note_capture_begun(real().cuStreamBeginCapture_v2_ptsz(hStream, mode), hStream);
}
CUresult hook_cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return note_capture_ended(real().cuStreamEndCapture(hStream, phGraph), phGraph);
}
CUresult hook_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return note_capture_ended(real().cuStreamEndCapture_ptsz(hStream, phGraph), phGraph);
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode) {
  return note_capture_begun(
      real().cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
                                         numDependencies, mode),
      hStream);
}
CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                               const CUgraphNode* dependencies,
                                               const CUgraphEdgeData* dependencyData,
                                               size_t numDependencies, CUstreamCaptureMode mode) {
  return note_capture_begun(
      real().cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
                                              numDependencies, mode),
      hStream);
}
}  // namespace gpuckpt
