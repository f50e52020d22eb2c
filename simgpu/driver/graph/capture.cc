// Stream capture: the work of a capturing stream becomes nodes of a graph. Calls that may not
// happen meanwhile fail and invalidate the capture.
#include "driver/graph/graph.h"

namespace simgpu {

CapturePoint::CapturePoint(Ref<GraphNode> n, const CUgraphEdgeData& d)
    : node(std::move(n)), data(d) {}
CapturePoint::CapturePoint(const CapturePoint&) = default;
CapturePoint& CapturePoint::operator=(const CapturePoint&) = default;
CapturePoint::~CapturePoint() = default;
Capture::~Capture() = default;

namespace {

std::atomic<int> open_captures{0};
std::vector<Capture*>* captures = nullptr;  // open ones; guarded by capture_mutex()

void invalidate(Capture& c) {
  if (c.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) c.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

// Makes all streams leave the capture.
void close(Ref<Capture> c, Context& context) {
  Lock order(context.order);
  for (Stream* s : context.streams) {
    if (s->capture.get() != c.get()) continue;
    s->capture = {};
    s->capture_points.clear();
  }
  if (c->graph) c->graph->capturing = false;
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

CUresult begin(CUstream handle, CUstreamCaptureMode mode, Ref<Graph> graph,
               const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  if (s->role == Stream::Role::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::vector<CapturePoint> points;
  for (size_t i = 0; i < count; ++i) {
    Ref<GraphNode> n;
    if (CUresult r = find_node(dependencies[i], &n); r != CUDA_SUCCESS) return r;
    if (n->graph != graph.get()) return CUDA_ERROR_INVALID_VALUE;
    points.push_back({n, data ? data[i] : CUgraphEdgeData{}});
  }
  Lock lock(capture_mutex());
  if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto c = Ref<Capture>::adopt(new Capture);
  c->own_graph = !graph;
  if (graph && graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  c->graph = graph ? graph : Graph::make(nullptr);
  c->graph->capturing = true;
  c->mode = mode;
  c->id = fresh_id();
  c->origin = s.get();
  c->owner = thread();
  c->context = s->context->id;
  c->listed = true;
  if (!captures) captures = new std::vector<Capture*>;
  captures->push_back(c.get());
  open_captures.fetch_add(1);
  s->capture = c;
  s->capture_points = points;
  return CUDA_SUCCESS;
}

struct Info {
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, const Info& more) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  Lock lock(capture_mutex());
  if (s->role == Stream::Role::kLegacy && open_captures.load() != 0) {
    for (Capture* c : *captures)
      if (c->context == s->context->id && c->origin->blocking())
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *status = s->capture ? s->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
  if (!s->capture || s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id) *id = s->capture->id;
  if (more.graph) *more.graph = s->capture->graph->handle();
  if (more.count) *more.count = s->capture_points.size();
  // Valid until the thread asks again.
  ThreadState* t = thread();
  t->asked_nodes.clear();
  t->asked_edges.clear();
  bool lossy = false;
  for (const CapturePoint& p : s->capture_points) {
    t->asked_nodes.push_back(p.node->handle());
    t->asked_edges.push_back(p.data);
    lossy = lossy || p.data.type != 0 || p.data.from_port != 0;
  }
  if (more.nodes) {
    if (lossy && !more.edges) return CUDA_ERROR_LOSSY_QUERY;
    *more.nodes = t->asked_nodes.data();
  }
  if (more.edges) *more.edges = t->asked_edges.data();
  return CUDA_SUCCESS;
}

// Use of the legacy stream waits for blocking streams, which a capture cannot do.
CUresult forbid_implicit(Stream& s) {
  if (s.role != Stream::Role::kLegacy || !captures) return CUDA_SUCCESS;
  for (Capture* c : *captures) {
    if (c->context != s.context->id || !c->origin->blocking()) continue;
    invalidate(*c);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

bool listed_already(const std::vector<CapturePoint>& points, const GraphNode* n) {
  for (const CapturePoint& p : points)
    if (p.node.get() == n) return true;
  return false;
}

void add_points(std::vector<CapturePoint>* to, const std::vector<CapturePoint>& from) {
  for (const CapturePoint& p : from)
    if (!listed_already(*to, p.node.get())) to->push_back(p);
}

bool has(const std::vector<uint64_t>& numbers, uint64_t number) {
  for (uint64_t n : numbers)
    if (n == number) return true;
  return false;
}

// The nodes that the origin stream waits for, as numbers.
std::vector<uint64_t> before_origin(const Capture& c) {
  std::vector<GraphNode*> before;
  for (const CapturePoint& p : c.origin->capture_points) before.push_back(p.node.get());
  std::vector<uint64_t> seen;
  while (!before.empty()) {
    GraphNode* n = before.back();
    before.pop_back();
    if (has(seen, n->uid)) continue;
    seen.push_back(n->uid);
    for (const Edge& e : n->in) before.push_back(e.node);
  }
  return seen;
}

// Whether the origin stream has joined this stream.
bool joined(const std::vector<uint64_t>& origin, const Stream& s) {
  for (const CapturePoint& p : s.capture_points)
    if (!has(origin, p.node->uid)) return false;
  return true;
}

// Whether it has joined all other streams of the capture.
bool joined(const Capture& c, Context& context) {
  const std::vector<uint64_t> origin = before_origin(c);
  Lock order(context.order);
  for (Stream* s : context.streams)
    if (s->capture.get() == &c && s != c.origin && !joined(origin, *s)) return false;
  return true;
}

CUresult update(CUstream handle, CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count,
                unsigned flags) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count != 0 && !nodes))
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(handle, &s); r != CUDA_SUCCESS) return r;
  Lock lock(capture_mutex());
  if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (s->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<CapturePoint> points;
  for (size_t i = 0; i < count; ++i) {
    Ref<GraphNode> n;
    if (CUresult r = find_node(nodes[i], &n); r != CUDA_SUCCESS) return r;
    if (n->graph != s->capture->graph.get()) return CUDA_ERROR_INVALID_VALUE;
    points.push_back({n, data ? data[i] : CUgraphEdgeData{}});
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) s->capture_points.clear();
  add_points(&s->capture_points, points);
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
  return forbid_implicit(s);
}

CUresult refuse_capture(Stream& s) {
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  {
    Lock lock(capture_mutex());
    if (s.capture && s.capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return forbid_capture(s);
}

CUresult forbid_unsafe() {
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  ThreadState* t = thread();
  if (t->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  if (!captures) return CUDA_SUCCESS;
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

bool is_capturing(Stream& s) {
  if (open_captures.load(std::memory_order_relaxed) == 0) return false;
  Lock lock(capture_mutex());
  return static_cast<bool>(s.capture);
}

CUresult route(Stream& s, const Ref<Action>& action, bool* captured) {
  *captured = false;
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  if (!s.capture) return forbid_implicit(s);
  if (s.capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Lock graphs(graph_mutex());
  Graph& g = *s.capture->graph;
  if (action->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    std::vector<GraphNode*> past;
    for (const CapturePoint& p : s.capture_points)
      if (p.node->graph == &g) past.push_back(p.node.get());
    g.reuse_memory(static_cast<AllocAction*>(action.get()), past);
  }
  GraphNode* n = g.add(action);
  for (const CapturePoint& p : s.capture_points)
    if (p.node->graph == &g) g.connect(p.node.get(), n, p.data);
  s.capture_points.clear();
  s.capture_points.push_back({Ref<GraphNode>(n), {}});
  *captured = true;
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream& s, Ref<Action> action) {
  bool captured = false;
  CUresult r = route(s, action, &captured);
  if (r != CUDA_SUCCESS || captured) return r;
  s.submit(new ActionWork(std::move(action)));
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

CUresult capture_event(Event& e, Stream& s, bool* captured) {
  *captured = false;
  if (open_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Lock lock(capture_mutex());
  if (!s.capture) return forbid_implicit(s);
  if (s.capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Lock event(e.mutex);
  e.capture = s.capture;
  e.capture_points = s.capture_points;
  *captured = true;
  return CUDA_SUCCESS;
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
  } else if (!s.capture) {  // joins
    s.capture = of_event;
    s.capture_points = e.capture_points;
  } else if (s.capture.get() != of_event.get()) {
    invalidate(*s.capture);
    invalidate(*of_event);
    *r = CUDA_ERROR_STREAM_CAPTURE_MERGE;
  } else {
    add_points(&s.capture_points, e.capture_points);
  }
  return true;
}

void end_captures_of(Stream& s) {
  if (open_captures.load(std::memory_order_relaxed) == 0) return;
  Lock lock(capture_mutex());
  if (!s.capture) return;
  Ref<Capture> c = s.capture;
  // The capture continues without the stream if the origin waits for all of its work.
  if (c->origin == &s || !joined(before_origin(*c), s)) invalidate(*c);
  if (c->origin == &s) close(c, *s.context);
  s.capture = {};
  s.capture_points.clear();
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuStreamBeginCapture(CUstream stream) {
  ENTER(cuStreamBeginCapture);
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, {}, nullptr, nullptr, 0);
}

SIMGPU_API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture_v2);
  return begin(stream, mode, {}, nullptr, nullptr, 0);
}

SIMGPU_API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                       const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                                       size_t count, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCaptureToGraph);
  if (count != 0 && !dependencies) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(graph, &g); r != CUDA_SUCCESS) return r;
  return begin(stream, mode, g, dependencies, data, count);
}

SIMGPU_API cuStreamEndCapture(CUstream stream, CUgraph* out) {
  ENTER(cuStreamEndCapture);
  if (out) *out = nullptr;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  Lock lock(capture_mutex());
  Ref<Capture> c = s->capture;
  // A program that captures into a graph of its own has it already.
  if (!out && (!c || c->own_graph)) return CUDA_ERROR_INVALID_VALUE;
  if (!c) return CUDA_ERROR_ILLEGAL_STATE;
  if (c->origin != s.get()) {
    invalidate(*c);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->owner != thread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  CUresult r = c->status != CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
               : joined(*c, *s->context)                    ? CUDA_SUCCESS
                                                            : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  close(c, *s->context);
  if (r != CUDA_SUCCESS) return r;
  if (c->own_graph) c->graph->retain();  // the handle's
  if (out) *out = c->graph->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ENTER(cuStreamIsCapturing);
  return info(stream, status, nullptr, {});
}

SIMGPU_API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  ENTER(cuStreamGetCaptureInfo);
  return info(stream, status, id, {});
}

SIMGPU_API cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode** dependencies,
                                     size_t* count) {
  ENTER(cuStreamGetCaptureInfo_v2);
  return info(stream, status, id, {graph, dependencies, nullptr, count});
}

SIMGPU_API cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                     CUgraph* graph, const CUgraphNode** dependencies,
                                     const CUgraphEdgeData** edges, size_t* count) {
  ENTER(cuStreamGetCaptureInfo_v3);
  return info(stream, status, id, {graph, dependencies, edges, count});
}

SIMGPU_API cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                             unsigned flags) {
  ENTER(cuStreamUpdateCaptureDependencies);
  return update(stream, nodes, nullptr, count, flags);
}

SIMGPU_API cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                                const CUgraphEdgeData* data, size_t count,
                                                unsigned flags) {
  ENTER(cuStreamUpdateCaptureDependencies_v2);
  return update(stream, nodes, data, count, flags);
}

SIMGPU_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMGPU_ENTER_WITH("cuThreadExchangeStreamCaptureMode", kInitialised | kCallbackAllowed);
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  ThreadState* t = thread();
  CUstreamCaptureMode before = t->capture_mode;
  t->capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
