#include "driver/stream/stream.h"

#include "driver/context/green.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <x86intrin.h>

namespace simgpu {

namespace {

// Threads that ask at the same time all ask the kernel, and get the same answer. The driver is
// compiled without guards around local statics, so a local static would be a race here.
bool one_core() {
  static std::atomic<long> cores{0};
  long n = cores.load(std::memory_order_relaxed);
  if (n == 0) {
    n = sysconf(_SC_NPROCESSORS_ONLN);
    cores.store(n, std::memory_order_relaxed);
  }
  return n < 2;
}

// Most work ends within microseconds, so the caller polls that long before it sleeps, which is
// quicker than being woken. With one core it sleeps at once.
template <class F>
bool spin_until(F f) {
  constexpr uint64_t kCycles = 40000;
  if (f()) return true;
  if (one_core()) return false;
  for (const uint64_t begin = __rdtsc(); __rdtsc() - begin < kCycles;)
    for (int k = 0; k < 8; ++k) {
      _mm_pause();
      if (f()) return true;
    }
  return false;
}

// Products of matrices need 90 KiB of stack.
bool can_run_kernels() {
  constexpr size_t kEnough = 256 << 10;
  ThreadState* t = thread();
  if (t->stack_bytes == 0) {
    pthread_attr_t attributes;
    void* lowest;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &lowest, &t->stack_bytes);
      pthread_attr_destroy(&attributes);
    }
    if (t->stack_bytes == 0) t->stack_bytes = 1;  // unknown
  }
  return t->stack_bytes >= kEnough;
}

}  // namespace

void Timeline::advance(uint64_t n) {
  Lock lock(mutex_);
  if (n > done_.load(std::memory_order_relaxed)) done_.store(n, std::memory_order_release);
  moved_.broadcast();
}

void Timeline::wait(uint64_t n) {
  if (spin_until([&] { return reached(n); })) return;
  Lock lock(mutex_);
  while (!reached(n)) moved_.wait(mutex_);
}

bool Timeline::wait_unless(uint64_t n, const std::atomic<bool>& cancelled) {
  if (reached(n)) return true;
  Lock lock(mutex_);
  while (!reached(n)) {
    if (cancelled.load()) return false;
    moved_.wait_for(mutex_, 100000000);
  }
  return true;
}

Stream::Stream(Ref<Context> c, Role r, unsigned f, int p, Ref<Object> g)
    : Object(kKind),
      context(std::move(c)),
      role(r),
      flags(f),
      priority(p),
      green(std::move(g)),
      id(fresh_id()) {
  timeline = Ref<Timeline>::adopt(new Timeline);
  attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = p;
  Lock lock(context->order);
  context->streams.push_back(this);
}

Stream::~Stream() {
  Lock lock(context->order);
  std::vector<Stream*>& all = context->streams;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == this) {
      all.erase(all.begin() + static_cast<long>(i));
      break;
    }
  }
}

Point Stream::last() {
  Lock lock(mutex_);
  return Point{timeline, submitted_};
}

// The legacy stream waits for all blocking streams, and they wait for it.
void Stream::add_implicit_order(Work* w) {
  if (!blocking()) return;
  for (Stream* other : context->streams) {
    if (other == this || !other->blocking()) continue;
    if (role != Role::kLegacy && other->role != Role::kLegacy) continue;
    Point p = other->last();
    if (!p.reached()) w->after.push_back(std::move(p));
  }
}

uint64_t Stream::append(Work* w, bool inline_if_idle, bool* run_inline) {
  Lock order(context->order);
  add_implicit_order(w);
  bool ready = true;
  for (const Point& p : w->after) ready = ready && p.reached();
  Lock lock(mutex_);
  w->number = ++submitted_;
  if (closing_ || (inline_if_idle && ready && timeline->reached(submitted_ - 1))) {
    *run_inline = true;
    return w->number;
  }
  if (tail_) {
    tail_->next = w;
  } else {
    head_ = w;
  }
  tail_ = w;
  more_.store(true, std::memory_order_release);
  if (!started_) {
    started_ = true;
    {
      Lock workers(context->workers_mutex);
      ++context->workers;
    }
    retain();  // the thread's
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int failed = pthread_create(&thread, &attr, entry, this);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed != 0) say("no thread for a stream: %s", strerror(failed));
  }
  if (asleep_) {
    asleep_ = false;
    wake_.signal();
  }
  return w->number;
}

uint64_t Stream::submit(Work* w) {
  bool run_inline = false;
  uint64_t n = append(w, false, &run_inline);
  if (run_inline) perform(w);  // a stream that ends skips the work instead
  return n;
}

void Stream::submit_at_once(Work* w) {
  bool run_inline = false;
  append(w, true, &run_inline);
  if (run_inline) perform(w);
}

CUresult Stream::run(Work* w) {
  bool run_inline = false;
  Ref<Context> c = context;
  uint64_t n = append(w, true, &run_inline);
  if (run_inline) {
    perform(w);
  } else {
    wait(n, w);
  }
  c->flush_output();
  return c->active() ? c->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

namespace {
class Nothing : public Work {
 public:
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override { return "barrier"; }
  bool on_any_thread() const override { return true; }
};
}  // namespace

CUresult Stream::wait_all() {
  if (role == Role::kLegacy) return run(new Nothing);
  Ref<Context> c = context;
  wait(last().number);
  c->flush_output();
  return c->active() ? c->error() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void Stream::wait(uint64_t number, const Work* own) {
  if (!timeline->reached(number) && can_run_kernels()) {
    while (!timeline->reached(number) && help(number, own)) {
    }
  }
  timeline->wait(number);
}

// Executes the head of the queue if it can begin at once. It is done sooner than the stream's
// thread wakes up, above all on a machine whose cores are busy.
bool Stream::help(uint64_t number, const Work* own) {
  Ref<Context> c = context;
  Work* w;
  {
    Lock lock(mutex_);
    w = head_;
    if (!w || w->number > number || (w != own && !w->on_any_thread()) ||
        !timeline->reached(w->number - 1))
      return false;
    for (const Point& p : w->after)
      if (!p.reached()) return false;
    Lock workers(c->workers_mutex);  // the context's end waits for this thread
    if (closing_) return false;
    ++c->workers;
    take();
  }
  perform(w);
  Lock workers(c->workers_mutex);
  --c->workers;
  c->workers_gone.broadcast();
  return true;
}

Work* Stream::take() {
  Work* w = head_;
  head_ = w->next;
  if (!head_) {
    tail_ = nullptr;
    more_.store(false, std::memory_order_relaxed);
  }
  return w;
}

bool Stream::idle() {
  if (!last().reached()) return false;
  if (role != Role::kLegacy) return true;
  Lock order(context->order);
  for (Stream* other : context->streams)
    if (other->blocking() && !other->last().reached()) return false;
  return true;
}

void Stream::close() {
  Lock lock(mutex_);
  closing_ = true;
  asleep_ = false;
  wake_.broadcast();
}

void Stream::perform(Work* w) {
  CUresult r = context->cancel.load() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->error();
  if (r != CUDA_SUCCESS) {
    w->skipped(r);
  } else {
    r = w->execute(*context);
    if (r != CUDA_SUCCESS) context->fail(r, w->name());
  }
  uint64_t n = w->number;
  Ref<Timeline> t = timeline;
  delete w;
  t->advance(n);
}

void Stream::loop() {
  for (;;) {
    Work* w;
    spin_until([&] { return more_.load(std::memory_order_acquire); });
    {
      Lock lock(mutex_);
      while (!head_) {
        if (closing_) return;
        asleep_ = true;
        wake_.wait(mutex_);
        asleep_ = false;
      }
      w = take();
    }
    timeline->wait(w->number - 1);
    for (const Point& p : w->after) p.timeline->wait_unless(p.number, context->cancel);
    perform(w);
  }
}

void* Stream::entry(void* self) {
  auto* s = static_cast<Stream*>(self);
  pthread_setname_np(pthread_self(), "simgpu-stream");
  s->loop();
  Ref<Context> c = s->context;
  s->release();
  Lock lock(c->workers_mutex);
  --c->workers;
  c->workers_gone.broadcast();
  return nullptr;
}

CUresult enqueue(Stream& s, Work* w) {
  CUresult r = refuse_capture(s);
  if (r != CUDA_SUCCESS) {
    delete w;
    return r;
  }
  s.submit(w);
  return CUDA_SUCCESS;
}

static GreenContext* green_of(const Stream& s) { return static_cast<GreenContext*>(s.green.get()); }
static bool ended_green(const Stream& s) { return s.green && !green_of(s)->usable(); }

CUresult resolve(CUstream handle, Ref<Stream>* out, bool tolerate_error) {
  if (!handle) {
    ThreadState* t = thread_if_known();
    handle = t && t->per_thread > 0 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  }
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Ref<Context> c;
    if (CUresult r = current(&c, tolerate_error); r != CUDA_SUCCESS) return r;
    if (Ref<GreenContext> green = current_green()) {
      if (handle == CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
      *out = green->standard;
      return *out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (handle == CU_STREAM_LEGACY) {
      *out = c->legacy;
      return *out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    ThreadState* t = thread();
    for (size_t i = 0; i < t->streams.size(); ++i) {
      if (t->streams[i].context == c->id) {
        *out = t->streams[i].stream;
        return CUDA_SUCCESS;
      }
      if (!t->streams[i].stream->context->active())
        t->streams.erase(t->streams.begin() + static_cast<long>(i--));
    }
    *out = Ref<Stream>::adopt(new Stream(c, Stream::Role::kPerThread, 0, 0));
    t->streams.push_back({c->id, *out});
    return CUDA_SUCCESS;
  }
  *out = state()->handles.get<Stream>(handle);
  if (!*out) return CUDA_ERROR_INVALID_HANDLE;
  if (!(*out)->context->active() || ended_green(**out)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return tolerate_error ? CUDA_SUCCESS : (*out)->context->error();
}

namespace {

CUresult create(CUstream* out, unsigned flags, int priority) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  return create_stream(c, current_green().get(), flags, priority, out);
}

}  // namespace

CUresult create_stream(const Ref<Context>& c, GreenContext* green, unsigned flags, int priority,
                       CUstream* out) {
  priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  auto* s = new Stream(c, Stream::Role::kCreated, flags, priority, Ref<Object>(green));
  if (green) {  // what the green context waits for, its future streams wait for
    Work* wait = new Nothing;
    wait->after.push_back(green->standard->last());
    s->submit(wait);
  }
  state()->handles.add(s);  // which owns the first reference
  *out = reinterpret_cast<CUstream>(s);
  return CUDA_SUCCESS;
}
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuStreamCreate(CUstream* out, unsigned flags) {
  ENTER(cuStreamCreate);
  return create(out, flags, 0);
}

SIMGPU_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  return create(out, flags, priority);
}

SIMGPU_API cuStreamDestroy_v2(CUstream handle) {
  ENTER(cuStreamDestroy_v2);
  Ref<Stream> s = state()->handles.get<Stream>(handle);
  if (s && ended_green(*s)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!s || !state()->handles.remove(s.get())) return CUDA_ERROR_INVALID_HANDLE;
  end_captures_of(*s);
  s->close();
  s->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

SIMGPU_API cuStreamSynchronize(CUstream handle) {
  ENTER(cuStreamSynchronize);
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  if (CUresult r = forbid_capture(*s); r != CUDA_SUCCESS) return r;
  return s->wait_all();
}

SIMGPU_API cuStreamQuery(CUstream handle) {
  ENTER(cuStreamQuery);
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  if (CUresult r = forbid_capture(*s); r != CUDA_SUCCESS) return r;
  if (!s->idle()) return CUDA_ERROR_NOT_READY;
  return s->context->error();
}

// Gives the caller what `read` finds in a stream.
template <class Out, class Read>
static CUresult tell(CUstream handle, Out* out, Read read) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  *out = read(*s);
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamGetPriority(CUstream handle, int* out) {
  ENTER(cuStreamGetPriority);
  return tell(handle, out, [](const Stream& s) { return s.priority; });
}

SIMGPU_API cuStreamGetFlags(CUstream handle, unsigned* out) {
  ENTER(cuStreamGetFlags);
  return tell(handle, out, [](const Stream& s) { return s.flags; });
}

SIMGPU_API cuStreamGetId(CUstream handle, unsigned long long* out) {
  ENTER(cuStreamGetId);
  return tell(handle, out, [](const Stream& s) { return s.id; });
}

SIMGPU_API cuStreamGetCtx(CUstream handle, CUcontext* out) {
  ENTER(cuStreamGetCtx);
  return tell(handle, out, [](Stream& s) {
    return s.green ? reinterpret_cast<CUcontext>(green_of(s)->alias.get()) : s.context->handle();
  });
}

SIMGPU_API cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  ENTER(cuStreamGetCtx_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  *out = s->context->handle();
  if (green) *green = reinterpret_cast<CUgreenCtx>(s->green.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamGetDevice(CUstream handle, CUdevice* out) {
  ENTER(cuStreamGetDevice);
  return tell(handle, out, [](const Stream& s) { return s.context->device->ordinal; });
}

namespace {
bool attribute_known(CUstreamAttrID id) {
  return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY || id == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
         id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}
}  // namespace

SIMGPU_API cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value) {
  ENTER(cuStreamGetAttribute);
  if (!value || !attribute_known(id)) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  *value = s->attributes[id];
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamSetAttribute(CUstream handle, CUstreamAttrID id,
                                const CUstreamAttrValue* value) {
  ENTER(cuStreamSetAttribute);
  if (!value || !attribute_known(id) || id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  s->attributes[id] = *value;
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamCopyAttributes(CUstream to, CUstream from) {
  ENTER(cuStreamCopyAttributes);
  Ref<Stream> a, b;
  if (CUresult r = resolve(to, &a); r != CUDA_SUCCESS) return r;
  if (CUresult r = resolve(from, &b); r != CUDA_SUCCESS) return r;
  for (int i = 0; i < 12; ++i)
    if (i != CU_LAUNCH_ATTRIBUTE_PRIORITY) a->attributes[i] = b->attributes[i];
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned flags) {
  ENTER(cuStreamAttachMemAsync);
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  Allocation a;
  if (!state()->memory.allocation(address, &a) || a.type != MemoryType::kManaged)
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(*s, new Nothing);
}
