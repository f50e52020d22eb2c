#include "driver/stream/action.h"

namespace simgpu {
namespace {

class Stamp : public Work {
 public:
  explicit Stamp(Ref<Event::Record> r) : record_(std::move(r)) {}
  CUresult execute(Context&) override {
    record_->time.store(now_ns());
    return CUDA_SUCCESS;
  }
  const char* name() const override { return "event record"; }
  bool on_any_thread() const override { return true; }

 private:
  Ref<Event::Record> record_;
};

class SharedStamp : public Work {
 public:
  SharedStamp(Ref<SharedEvent> e, uint64_t n) : event_(std::move(e)), number_(n) {}
  CUresult execute(Context&) override {
    event_->reach(number_);
    return CUDA_SUCCESS;
  }
  const char* name() const override { return "event record"; }

 private:
  Ref<SharedEvent> event_;
  const uint64_t number_;
};

// Another process may record the event, and cannot wake a thread of this one: poll.
constexpr uint64_t kAskAgainNs = 50000;

class SharedWait : public Work {
 public:
  SharedWait(Ref<SharedEvent> e, uint64_t n) : event_(std::move(e)), number_(n) {}
  CUresult execute(Context& c) override {
    while (!event_->reached(number_)) {
      if (c.cancel.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      sleep_ns(kAskAgainNs);
    }
    return CUDA_SUCCESS;
  }
  const char* name() const override { return "event wait"; }

 private:
  Ref<SharedEvent> event_;
  const uint64_t number_;
};

class Barrier : public Work {
 public:
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override { return "event wait"; }
};

CUresult find(CUevent handle, Ref<Event>* out) {
  *out = state()->handles.get<Event>(handle);
  if (!*out || !(*out)->context->active() || (*out)->context_id != (*out)->context->id)
    return CUDA_ERROR_INVALID_HANDLE;
  return (*out)->context->error();
}

CUresult record(CUevent event, Stream* s, unsigned flags) {
  Ref<Event> e;
  if (CUresult r = find(event, &e); r != CUDA_SUCCESS) return r;
  if (e->context.get() != s->context.get()) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
    if (!is_capturing(*s)) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(*s, Ref<Action>::adopt(new EventAction(CU_GRAPH_NODE_TYPE_EVENT_RECORD, e)));
  }
  if (bool captured = false; CUresult r = capture_event(*e, *s, &captured)) {
    return r;
  } else if (captured) {
    return CUDA_SUCCESS;
  }
  if (e->shared) {
    Lock lock(e->mutex);
    s->submit(new SharedStamp(e->shared, e->shared->begin()));
    return CUDA_SUCCESS;
  }
  auto record = Ref<Event::Record>::adopt(new Event::Record);
  record->context = s->context;
  Lock lock(e->mutex);
  record->point.timeline = s->timeline;
  record->point.number = s->submit(new Stamp(record));
  e->last = record;
  e->capture = {};
  e->capture_points.clear();
  return CUDA_SUCCESS;
}

CUresult record(CUevent event, CUstream stream, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  return record(event, s.get(), flags);
}

CUresult wait(Stream* s, CUevent event, unsigned flags) {
  Ref<Event> e;
  if (CUresult r = find(event, &e); r != CUDA_SUCCESS) return r;
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
    if (!is_capturing(*s)) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(*s, Ref<Action>::adopt(new EventAction(CU_GRAPH_NODE_TYPE_WAIT_EVENT, e)));
  }
  CUresult r = CUDA_SUCCESS;
  if (capture_wait(*e, *s, &r)) return r;
  if (e->shared) {
    const uint64_t latest = e->shared->latest();
    if (!e->shared->reached(latest)) s->submit(new SharedWait(e->shared, latest));
    return CUDA_SUCCESS;
  }
  Ref<Event::Record> record = e->record();
  if (!record || record->point.reached()) return CUDA_SUCCESS;
  auto* wait = new Barrier;
  wait->after.push_back(record->point);
  s->submit(wait);
  return CUDA_SUCCESS;
}

CUresult elapsed(float* ms, CUevent from, CUevent to) {
  if (!ms) return CUDA_ERROR_INVALID_VALUE;
  Ref<Event> a, b;
  if (CUresult r = find(from, &a); r != CUDA_SUCCESS) return r;
  if (CUresult r = find(to, &b); r != CUDA_SUCCESS) return r;
  if (((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  Ref<Event::Record> x = a->record(), y = b->record();
  if (!x || !y) return CUDA_ERROR_INVALID_HANDLE;
  if (!x->point.reached() || !y->point.reached()) return CUDA_ERROR_NOT_READY;
  // The resolution of the hardware is half a microsecond, too.
  auto ns = static_cast<int64_t>(y->time.load()) - static_cast<int64_t>(x->time.load());
  *ms = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult record_event(CUevent event, Stream& s) { return record(event, &s, 0); }
CUresult wait_event(Stream& s, CUevent event) { return wait(&s, event, 0); }

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuEventCreate(CUevent* out, unsigned flags) {
  ENTER(cuEventCreate);
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (!out || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool between = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (between && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  auto* e = new Event(c, flags);
  if (between) e->shared = SharedEvent::create();
  if (between && !e->shared) {
    e->release();
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  state()->handles.add(e);
  *out = reinterpret_cast<CUevent>(e);
  return CUDA_SUCCESS;
}

SIMGPU_API cuEventDestroy_v2(CUevent handle) {
  ENTER(cuEventDestroy_v2);
  Ref<Event> e = state()->handles.get<Event>(handle);
  if (!e || !state()->handles.remove(e.get())) return CUDA_ERROR_INVALID_HANDLE;
  e->release();
  return e->context->active() && e->context_id == e->context->id ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_HANDLE;
}

SIMGPU_API cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

SIMGPU_API cuEventRecord(CUevent event, CUstream stream) {
  ENTER(cuEventRecord);
  return record(event, stream, 0);
}

SIMGPU_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  ENTER(cuEventRecordWithFlags);
  return record(event, stream, flags);
}

SIMGPU_API cuEventQuery(CUevent handle) {
  ENTER(cuEventQuery);
  Ref<Event> e;
  if (CUresult r = find(handle, &e); r != CUDA_SUCCESS) return r;
  if (CUresult r = forbid_captured_event(*e); r != CUDA_SUCCESS) return r;
  if (e->shared && !e->shared->reached(e->shared->latest())) return CUDA_ERROR_NOT_READY;
  Ref<Event::Record> record = e->record();
  if (record && !record->point.reached()) return CUDA_ERROR_NOT_READY;
  return e->context->error();
}

SIMGPU_API cuEventSynchronize(CUevent handle) {
  ENTER(cuEventSynchronize);
  Ref<Event> e;
  if (CUresult r = find(handle, &e); r != CUDA_SUCCESS) return r;
  if (CUresult r = forbid_captured_event(*e); r != CUDA_SUCCESS) return r;
  Ref<Event::Record> record = e->record();
  if (record) record->point.timeline->wait(record->point.number);
  for (uint64_t n = e->shared ? e->shared->latest() : 0; n != 0 && !e->shared->reached(n);) {
    if (!e->context->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    sleep_ns(kAskAgainNs);
  }
  e->context->flush_output();
  return e->context->active() ? e->context->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

SIMGPU_API cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  ENTER(cuEventElapsedTime);
  return elapsed(ms, from, to);
}

SIMGPU_API cuEventElapsedTime_v2(float* ms, CUevent from, CUevent to) {
  ENTER(cuEventElapsedTime_v2);
  return elapsed(ms, from, to);
}

SIMGPU_API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  ENTER(cuStreamWaitEvent);
  if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  return wait(s.get(), event, flags);
}
