// Stream capture without graphs: a stream that captures swallows its work, calls that may not
// happen meanwhile fail and invalidate the capture, and ending a good capture says
// CUDA_ERROR_NOT_SUPPORTED, because there is no graph to give.
#include "stream.h"

namespace simgpu {
namespace {

std::atomic<int> open_captures{0};
std::vector<Capture*>* captures = nullptr;  // open ones; guarded by capture_mutex()

void invalidate(Capture& c) {
  if (c.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) c.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

// All streams leave it.
void close(Ref<Capture> c, Context& context) {
  Lock order(context.order);
  for (Stream* s : context.streams)
    if (s->capture.get() == c.get()) s->capture = {};
  if (!c->listed) return;
  c->listed = false;
  open_captures.fetch_sub(1);
  for (size_t i = 0; i < captures->size(); ++i) {
    if ((*captures)[i] == c.get()) {
      captures->erase(captures->begin() + static_cast<long>(i));
      break;
    }
  }
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  if (s->role == Stream::Role::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Lock lock(capture_mutex());
  if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto c = Ref<Capture>::adopt(new Capture);
  c->mode = mode;
  c->id = fresh_id();
  c->origin = s.get();
  c->owner = thread();
  c->context = s->context->id;
  c->listed = true;
  if (captures == nullptr) captures = new std::vector<Capture*>;
  captures->push_back(c.get());
  open_captures.fetch_add(1);
  s->capture = c;
  return CUDA_SUCCESS;
}

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  Lock lock(capture_mutex());
  if (s->role == Stream::Role::kLegacy && open_captures.load() != 0) {
    for (Capture* c : *captures)
      if (c->context == s->context->id && c->origin->blocking())
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *status = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
  if (id != nullptr && s->capture) *id = s->capture->id;
  return CUDA_SUCCESS;
}

}  // namespace

Mutex& capture_mutex() {
  static Mutex m;
  return m;
}

CUresult forbid_capture(Stream& s) {
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  if (s.capture) {
    invalidate(*s.capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (s.role != Stream::Role::kLegacy || open_captures.load() == 0) return CUDA_SUCCESS;
  for (Capture* c : *captures) {
    if (c->context != s.context->id || !c->origin->blocking()) continue;
    invalidate(*c);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

CUresult forbid_unsafe() {
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  ThreadState* t = thread();
  if (t->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  if (captures == nullptr) return CUDA_SUCCESS;
  CUresult r = CUDA_SUCCESS;
  for (Capture* c : *captures) {
    bool own = c->owner == t && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool others = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  t->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !others) continue;
    invalidate(*c);
    r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return r;
}

CUresult route(Stream& s, bool* captured) {
  *captured = false;
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  if (s.capture) {
    if (s.capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    ++s.capture->nodes;
    *captured = true;
    return CUDA_SUCCESS;
  }
  if (s.role != Stream::Role::kLegacy || captures == nullptr) return CUDA_SUCCESS;
  for (Capture* c : *captures) {
    if (c->context != s.context->id || !c->origin->blocking()) continue;
    invalidate(*c);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

CUresult forbid_captured_event(Event& e) {
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  Lock event(e.mutex);
  if (!e.capture || !e.capture->listed) return CUDA_SUCCESS;
  invalidate(*e.capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_event(Event& e, Stream& s) {
  Lock lock(capture_mutex());
  Lock event(e.mutex);
  e.capture = s.capture;
}

bool capture_wait(Event& e, Stream& s, CUresult* r) {
  *r = CUDA_SUCCESS;
  if (open_captures.load(std::memory_order_relaxed) == 0) return false;
  Lock lock(capture_mutex());
  Lock event(e.mutex);
  Ref<Capture> of_event = e.capture;
  if (of_event && !of_event->listed) of_event = {};
  if (!of_event && !s.capture) return false;
  if (!of_event) {  // work outside the capture
    invalidate(*s.capture);
    *r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  } else if (of_event->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    *r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (s.role == Stream::Role::kLegacy) {
    invalidate(*of_event);
    *r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  } else if (!s.capture) {
    s.capture = of_event;  // joins
  } else if (s.capture.get() != of_event.get()) {
    invalidate(*s.capture);
    invalidate(*of_event);
    *r = CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  return true;
}

void end_captures_of(Stream& s) {
  if (open_captures.load(std::memory_order_relaxed) == 0) return;
  Lock lock(capture_mutex());
  if (!s.capture) return;
  Ref<Capture> c = s.capture;
  invalidate(*c);
  if (c->origin == &s) {
    close(c, *s.context);
  }
  s.capture = {};
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuStreamBeginCapture(CUstream stream) {
  ENTER(cuStreamBeginCapture);
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIMGPU_API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture_v2);
  return begin(stream, mode);
}

SIMGPU_API cuStreamEndCapture(CUstream stream, CUgraph* out) {
  ENTER(cuStreamEndCapture);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  Lock lock(capture_mutex());
  Ref<Capture> c = s->capture;
  if (!c) return CUDA_ERROR_ILLEGAL_STATE;
  if (c->origin != s.get()) {
    invalidate(*c);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->owner != thread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  bool good = c->status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  close(c, *s->context);
  if (!good) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  say("stream capture: %llu operations were captured, but the simulated driver has no graphs yet",
      static_cast<unsigned long long>(c->nodes));
  return CUDA_ERROR_NOT_SUPPORTED;
}

SIMGPU_API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ENTER(cuStreamIsCapturing);
  return info(stream, status, nullptr);
}

SIMGPU_API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  ENTER(cuStreamGetCaptureInfo);
  return info(stream, status, id);
}

// The graph itself is not there to give.
SIMGPU_API cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode** dependencies,
                                     size_t* count) {
  ENTER(cuStreamGetCaptureInfo_v2);
  CUresult r = info(stream, status, id);
  if (r != CUDA_SUCCESS || *status == CU_STREAM_CAPTURE_STATUS_NONE) return r;
  return graph != nullptr || dependencies != nullptr || count != nullptr ? CUDA_ERROR_NOT_SUPPORTED
                                                                         : r;
}

SIMGPU_API cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode** dependencies,
                                     const CUgraphEdgeData** edges, size_t* count) {
  ENTER(cuStreamGetCaptureInfo_v3);
  CUresult r = info(stream, status, id);
  if (r != CUDA_SUCCESS || *status == CU_STREAM_CAPTURE_STATUS_NONE) return r;
  return graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr
             ? CUDA_ERROR_NOT_SUPPORTED
             : r;
}

SIMGPU_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMGPU_ENTER_WITH("cuThreadExchangeStreamCaptureMode", kInitialised | kCallbackAllowed);
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  ThreadState* t = thread();
  CUstreamCaptureMode before = t->capture_mode;
  t->capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
