// Streams: work in order, each on its own thread, and the events that order it across streams.
#pragma once

#include <vector>

#include "driver/context/context.h"

namespace simgpu {

// How far a stream has come. Outlives the stream while a thread waits for it.
class Timeline : public RefCounted {
 public:
  bool reached(uint64_t n) const { return done_.load(std::memory_order_acquire) >= n; }
  void advance(uint64_t n);  // done up to and including n
  void wait(uint64_t n);
  bool wait_unless(uint64_t n, const std::atomic<bool>& cancelled);
  uint64_t done() const { return done_.load(std::memory_order_acquire); }

 private:
  Mutex mutex_;
  Cond moved_;
  std::atomic<uint64_t> done_{0};
};

struct Point {
  Ref<Timeline> timeline;
  uint64_t number = 0;
  bool reached() const { return !timeline || timeline->reached(number); }
};

// One piece of work. execute() runs on the stream's thread (or the caller's, for work it waits for
// anyway).
class Work {
 public:
  virtual ~Work() = default;
  virtual CUresult execute(Context&) = 0;
  virtual void skipped(CUresult) {}  // the context failed or ended before its turn
  virtual const char* name() const = 0;
  // A thread that waits for the stream may execute it: it calls no function of the application and
  // waits for nothing.
  virtual bool on_any_thread() const { return false; }

  Work* next = nullptr;
  uint64_t number = 0;
  std::vector<Point> after;
};

class Action;
class Graph;
class GraphNode;

// The nodes that the next work of a capturing stream depends on.
struct CapturePoint {
  Ref<GraphNode> node;
  CUgraphEdgeData data;
  ~CapturePoint();
  CapturePoint(Ref<GraphNode>, const CUgraphEdgeData&);
  CapturePoint(const CapturePoint&);
  CapturePoint& operator=(const CapturePoint&);
};

struct Capture : public RefCounted {
  ~Capture() override;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  uint64_t id = 0;
  Stream* origin = nullptr;
  ThreadState* owner = nullptr;
  uint64_t context = 0;
  bool listed = false;
  bool own_graph = true;  // false: cuStreamBeginCaptureToGraph
  Ref<Graph> graph;
};

class Stream : public Object {
 public:
  static constexpr Kind kKind = Kind::kStream;
  enum class Role { kCreated, kLegacy, kPerThread };
  Stream(Ref<Context>, Role, unsigned flags, int priority, Ref<Object> green = {});
  ~Stream() override;

  // Appends; takes over the work. Returns its number.
  uint64_t submit(Work*);
  // Appends; done at once on the calling thread when nothing is before it, as an idle GPU would be
  // quicker than the caller's next call. For cuMemset* and cuMemcpyDtoD without Async.
  void submit_at_once(Work*);
  // Appends and waits; runs it on the calling thread when nothing is before it. The context's
  // error, if any.
  CUresult run(Work*);
  CUresult wait_all();
  // Waits until the work of that number is done, and does on the calling thread what the stream's
  // thread has not begun: `own`, which the caller has submitted, and what any thread may do.
  void wait(uint64_t number, const Work* own = nullptr);
  bool idle();
  void close();  // no more work will come; the thread exits when it has done what is queued

  bool blocking() const { return role == Role::kLegacy || (flags & CU_STREAM_NON_BLOCKING) == 0; }
  Point last();

  const Ref<Context> context;
  const Role role;
  const unsigned flags;
  const int priority;
  const Ref<Object> green;  // the GreenContext that it was made in; null: none
  uint64_t id = 0;
  Ref<Timeline> timeline;
  CUstreamAttrValue attributes[12] = {};
  // Guarded by capture_mutex(). A stream with a capture executes nothing: its work becomes nodes.
  Ref<Capture> capture;
  std::vector<CapturePoint> capture_points;

 private:
  uint64_t append(Work*, bool inline_if_idle, bool* run_inline);
  void add_implicit_order(Work*);
  Work* take();  // with mutex_ held: the head of the queue
  bool help(uint64_t number, const Work* own);
  void perform(Work*);
  void loop();
  static void* entry(void*);

  Mutex mutex_;
  Cond wake_;
  Work *head_ = nullptr, *tail_ = nullptr;
  std::atomic<bool> more_{false};  // there is a head
  uint64_t submitted_ = 0;
  bool started_ = false, closing_ = false;
  bool asleep_ = false;  // the stream's thread, until it is called
};

// The part of an interprocess event that processes share: a page in a file.
class SharedEvent : public RefCounted {
 public:
  static Ref<SharedEvent> create();
  static Ref<SharedEvent> import_fd(int fd);  // takes it; null: it is none
  ~SharedEvent() override;
  uint64_t begin() { return page_->recorded.fetch_add(1) + 1; }  // a recording: its number
  void reach(uint64_t number);
  uint64_t latest() const { return page_->recorded.load(); }
  bool reached(uint64_t number) const { return page_->reached.load() >= number; }
  int fd() const { return fd_; }

 private:
  struct Page {
    std::atomic<uint64_t> recorded, reached;
  };
  Page* page_ = nullptr;
  int fd_ = -1;
};

class Event : public Object {
 public:
  static constexpr Kind kKind = Kind::kEvent;
  // One recording. The time is taken when the stream gets there.
  struct Record : public RefCounted {
    Point point;
    std::atomic<uint64_t> time{0};
    Ref<Context> context;
  };
  Event(Ref<Context> c, unsigned f)
      : Object(kKind), context(std::move(c)), context_id(context->id), flags(f) {}

  Ref<Record> record() {
    Lock lock(mutex);
    return last;
  }
  const Ref<Context> context;
  const uint64_t context_id;  // an activation of it
  const unsigned flags;
  Mutex mutex;
  Ref<SharedEvent> shared;  // of CU_EVENT_INTERPROCESS: then that tells, and not `last`
  Ref<Record> last;         // null: never recorded
  Ref<Capture> capture;     // recorded in a capturing stream, which had come so far:
  std::vector<CapturePoint> capture_points;
};

// The stream a handle names for the calling thread: NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or
// a created one, and its context's sticky error.
CUresult resolve(CUstream, Ref<Stream>*, bool tolerate_error = false);

// Captures (capture.cc). The mutex guards Stream::capture and every Capture.
Mutex& capture_mutex();
// For a call that would order or wait for work of a capturing stream: fails and invalidates the
// capture.
CUresult forbid_capture(Stream&);
// For a call that is not safe while a capture is open anywhere (by mode): cuMemAlloc and the like.
CUresult forbid_unsafe();
// For work of `stream` that cannot be captured, and for use of the legacy stream while blocking
// streams capture.
CUresult refuse_capture(Stream&);
CUresult forbid_captured_event(Event&);
CUresult capture_event(Event&, Stream&, bool* captured);
bool capture_wait(Event&, Stream&, CUresult*);  // true: handled as part of a capture
void end_captures_of(Stream&);

class GreenContext;
// Checks nothing; of a green context, or none (null).
CUresult create_stream(const Ref<Context>&, GreenContext*, unsigned flags, int priority, CUstream*);
CUresult record_event(CUevent, Stream&);
CUresult wait_event(Stream&, CUevent);

// Submits work that cannot be captured; deletes it when the stream captures. What can be captured
// is an Action (action.h).
CUresult enqueue(Stream&, Work*);

// Orders work of all devices for the reclaiming of memory that kernels may still be using.
void retire(Ref<RefCounted>);
// While it lives, the caller holds plain pointers to memory of devices. Not one inside another.
class MemoryUse {
 public:
  MemoryUse();
  ~MemoryUse();
};
// Waits until no work uses such memory, so that it can be moved to another file. False: a kernel
// runs that never ends.
class MemoryPause {
 public:
  MemoryPause();
  ~MemoryPause();
  explicit operator bool() const { return idle_; }

 private:
  static constexpr uint64_t kPatienceNs = 10000000000ull;
  bool idle_;
};

}  // namespace simgpu
