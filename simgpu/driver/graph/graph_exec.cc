// Executable graphs: instantiation, updates, launches.
#include <stdio.h>
#include <string.h>

#include "driver/graph/graph.h"

namespace simgpu {

Ref<Plan> Plan::copy() const {
  auto p = Ref<Plan>::adopt(new Plan);
  p->steps = steps;
  for (Step& s : p->steps)
    for (Ref<Plan>& b : s.bodies) b = b->copy();
  p->users = users;
  retain_users(users);
  return p;
}

Step* Plan::find(uint64_t uid) {
  for (Step& s : steps) {
    if (s.uid == uid) return &s;
    for (Ref<Plan>& b : s.bodies)
      if (Step* found = b->find(uid)) return found;
  }
  return nullptr;
}

GraphExec::~GraphExec() = default;

GraphNode* make_plan(const Graph& g, Ref<Plan>* out) {
  auto plan = Ref<Plan>::adopt(new Plan);
  std::vector<size_t> waiting;
  std::vector<size_t> ready;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    waiting.push_back(g.nodes[i]->in.size());
    if (waiting[i] == 0) ready.push_back(i);
  }
  for (size_t k = 0; k < ready.size(); ++k) {
    const GraphNode& n = *g.nodes[ready[k]];
    Step s;
    s.action = n.action;
    s.uid = n.uid;
    s.index = static_cast<int>(ready[k]);
    for (const Edge& e : n.in) {
      s.after.push_back(g.index_of(e.node));
      s.after_data.push_back(e.data);
    }
    for (const Ref<Graph>& b : n.bodies) {
      Ref<Plan> body;
      if (GraphNode* bad = make_plan(*b, &body)) return bad;
      s.bodies.push_back(body);
    }
    plan->steps.push_back(std::move(s));
    for (const Edge& e : n.out) {
      auto to = static_cast<size_t>(g.index_of(e.node));
      if (--waiting[to] == 0) ready.push_back(to);
    }
  }
  if (ready.size() != g.nodes.size()) {
    for (size_t i = 0; i < g.nodes.size(); ++i)
      if (waiting[i] != 0) return g.nodes[i].get();
  }
  plan->users = g.users;
  retain_users(plan->users);
  *out = std::move(plan);
  return nullptr;
}

void unmake_plan(const Plan& p, Graph* g) {
  std::vector<GraphNode*> by_index(p.steps.size());
  for (const Step& s : p.steps) {
    GraphNode* n = g->add(s.enabled ? s.action : Ref<Action>::adopt(new EmptyAction));
    by_index[static_cast<size_t>(s.index)] = n;
    for (const Ref<Plan>& b : s.bodies) {
      n->bodies.push_back(Graph::make(n));
      unmake_plan(*b, n->bodies.back().get());
    }
  }
  for (const Step& s : p.steps)
    for (size_t i = 0; i < s.after.size(); ++i)
      g->connect(by_index[static_cast<size_t>(s.after[i])], by_index[static_cast<size_t>(s.index)],
                 s.after_data[i]);
  for (const HeldUser& u : p.users) g->users.push_back(u);
  retain_users(p.users);
}

CUresult find_exec(CUgraphExec handle, Ref<GraphExec>* out) {
  *out = state()->handles.get<GraphExec>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace {

// Releases the references to user objects when its last owner ends.
void drop_plan(Ref<Plan>* p) {
  if (*p) release_users(&(*p)->users);
  *p = {};
}

// One launch. Which recording of an event each node makes or waits for is decided when the launch
// is submitted, not when it runs.
class GraphWork : public Work {
 public:
  explicit GraphWork(Ref<Plan> p) : plan_(std::move(p)), users_(plan_->users) {
    retain_users(users_);
  }
  ~GraphWork() override {
    finish_records();
    release_users(&users_);
  }
  // graph_mutex() held.
  CUresult prepare(bool auto_free) { return prepare(*plan_, auto_free); }
  CUresult execute(Context& c) override {
    stream_context_ = &c;
    return run(*plan_);
  }
  void skipped(CUresult) override { finish_records(); }
  const char* name() const override { return "graph"; }

 private:
  CUresult prepare(const Plan& p, bool auto_free) {
    for (const Step& s : p.steps) {
      if (!s.enabled) continue;
      switch (static_cast<int>(s.action->type)) {
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
          Event& e = *static_cast<EventAction*>(s.action.get())->event;
          auto r = Ref<Event::Record>::adopt(new Event::Record);
          r->context = e.context;
          r->point.timeline = Ref<Timeline>::adopt(new Timeline);
          r->point.number = 1;
          records_.push_back(r);
          Lock lock(e.mutex);
          e.last = r;
          e.capture = {};
          e.capture_points.clear();
          break;
        }
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
          Ref<Event::Record> r = static_cast<EventAction*>(s.action.get())->event->record();
          waits_.push_back(r ? r->point : Point());
          break;
        }
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
          GraphMemory& m = *static_cast<AllocAction*>(s.action.get())->memory;
          if (CUresult r = m.allocate(auto_free); r != CUDA_SUCCESS) return r;
          break;
        }
        case CU_GRAPH_NODE_TYPE_MEM_FREE: {
          Ref<GraphMemory> m = graph_memory_at(static_cast<FreeAction*>(s.action.get())->address);
          if (!m) return CUDA_ERROR_INVALID_VALUE;
          if (CUresult r = m->free(); r != CUDA_SUCCESS) return r;
          break;
        }
        case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
          Conditional& c = *static_cast<ConditionalAction*>(s.action.get())->value;
          if ((c.flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
            assign_.push_back(Ref<Conditional>(&c));
          break;
        }
        default:
          break;
      }
      // Bodies of conditionals contain neither events nor memory nodes.
      for (const Ref<Plan>& b : s.bodies)
        if (CUresult r = prepare(*b, auto_free); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }

  CUresult run(const Plan& p) {
    for (const Ref<Conditional>& c : assign_) c->value.store(c->standard);
    assign_.clear();
    for (const Step& s : p.steps) {
      if (!s.enabled) continue;
      if (CUresult r = run(s); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }

  CUresult run(const Step& s) {
    Context* c = s.action->context.get();
    if (c) {
      if (c->cancel.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      if (CUresult r = c->error(); r != CUDA_SUCCESS) return r;
    }
    switch (static_cast<int>(s.action->type)) {
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        finish(*records_[next_record_++]);
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
        Point& p = waits_[next_wait_++];
        static const std::atomic<bool> never{false};
        if (p.timeline) p.timeline->wait_unless(p.number, never);
        return CUDA_SUCCESS;
      }
      case CU_GRAPH_NODE_TYPE_GRAPH:
        return run(*s.bodies[0]);
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return run_conditional(*static_cast<ConditionalAction*>(s.action.get()), s);
      default: {
        CUresult r = s.action->execute(c ? *c : *stream_context_);
        if (r != CUDA_SUCCESS && c) c->fail(r, s.action->name());
        return r;
      }
    }
  }

  CUresult run_conditional(const ConditionalAction& a, const Step& s) {
    auto value = [&] { return a.value->value.load(); };
    if (a.condition == CU_GRAPH_COND_TYPE_WHILE) {
      while (value() != 0 && !a.context->cancel.load())
        if (CUresult r = run(*s.bodies[0]); r != CUDA_SUCCESS) return r;
      return CUDA_SUCCESS;
    }
    size_t body = a.condition == CU_GRAPH_COND_TYPE_SWITCH ? value() : value() != 0 ? 0 : 1;
    return body < s.bodies.size() ? run(*s.bodies[body]) : CUDA_SUCCESS;
  }

  static void finish(Event::Record& r) {
    uint64_t none = 0;
    r.time.compare_exchange_strong(none, now_ns());
    r.point.timeline->advance(1);
  }
  void finish_records() {
    for (Ref<Event::Record>& r : records_) finish(*r);
  }

  const Ref<Plan> plan_;
  std::vector<HeldUser> users_;  // as they were when it was submitted
  std::vector<Ref<Event::Record>> records_;
  std::vector<Point> waits_;
  std::vector<Ref<Conditional>> assign_;
  Context* stream_context_ = nullptr;
  size_t next_record_ = 0, next_wait_ = 0;
};

constexpr uint64_t kFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

struct Failure {
  CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  CUgraphNode node = nullptr;
};

CUresult instantiate(CUgraphExec* out, CUgraph handle, uint64_t flags, Failure* failure) {
  failure->why = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (!out || (flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Graphs launched by kernels need a device runtime.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    failure->why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  if (g->capturing) return CUDA_ERROR_INVALID_VALUE;
  bool only_one =
      g->holds(CU_GRAPH_NODE_TYPE_MEM_ALLOC) || g->holds(CU_GRAPH_NODE_TYPE_CONDITIONAL);
  if (only_one && g->executables != 0) return CUDA_ERROR_NOT_SUPPORTED;
  Ref<Plan> plan;
  if (GraphNode* bad = make_plan(*g, &plan)) {
    failure->why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    failure->node = bad->handle();
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* e = new GraphExec;
  e->plan = plan;
  e->flags = flags;
  if (only_one) {
    ++g->executables;
    e->only = g;
  }
  state()->handles.add(e);  // which owns the first reference
  *out = e->handle();
  failure->why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult instantiate_with_log(CUgraphExec* out, CUgraph g, CUgraphNode* bad, char* log,
                              size_t bytes) {
  Failure f;
  CUresult r = instantiate(out, g, 0, &f);
  if (bad) *bad = f.node;
  if (log && bytes != 0)
    snprintf(log, bytes, "%s", f.why == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE ? "cycle" : "");
  return r;
}

CUresult upload(CUgraphExec exec, CUstream stream) {
  Ref<GraphExec> e;
  if (CUresult r = find_exec(exec, &e); r != CUDA_SUCCESS) return r;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (CUresult r = refuse_capture(*s); r != CUDA_SUCCESS) return r;
  s->submit(new ActionWork(Ref<Action>::adopt(new EmptyAction)));
  return CUDA_SUCCESS;
}

// A launch in a capturing stream becomes a child graph.
CUresult capture_launch(Stream& s, const Ref<Plan>& plan) {
  auto action = Ref<Action>::adopt(new EmptyAction(CU_GRAPH_NODE_TYPE_GRAPH));
  bool captured = false;
  if (CUresult r = route(s, action, &captured); r != CUDA_SUCCESS) return r;
  Lock captures(capture_mutex());
  Lock lock(graph_mutex());
  if (s.capture_points.size() != 1) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode& n = *s.capture_points[0].node;
  n.bodies.push_back(Graph::make(&n));
  unmake_plan(*plan, n.bodies.back().get());
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec exec, CUstream stream) {
  Ref<GraphExec> e;
  if (CUresult r = find_exec(exec, &e); r != CUDA_SUCCESS) return r;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (is_capturing(*s)) {
    Ref<Plan> plan;
    {
      Lock lock(graph_mutex());
      plan = e->plan;
    }
    return capture_launch(*s, plan);
  }
  if (CUresult r = refuse_capture(*s); r != CUDA_SUCCESS) return r;
  s->context->flush_output();
  Lock lock(graph_mutex());
  auto* w = new GraphWork(e->plan);
  bool auto_free = (e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  if (CUresult r = w->prepare(auto_free); r != CUDA_SUCCESS) {
    delete w;
    return r;
  }
  if (!e->last.reached()) w->after.push_back(e->last);
  Ref<Timeline> t = s->timeline;
  e->last.number = s->submit(w);
  e->last.timeline = t;
  return CUDA_SUCCESS;
}

// Puts `change`d parameters into the executable's node.
template <class F>
CUresult change(CUgraphExec exec, CUgraphNode node, F change) {
  Ref<GraphExec> e;
  Ref<GraphNode> n;
  if (CUresult r = find_exec(exec, &e); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_node(node, &n); r != CUDA_SUCCESS) return r;
  Ref<Plan> old;
  {
    Lock lock(graph_mutex());
    Ref<Plan> plan = e->plan->copy();
    Step* s = plan->find(n->uid);
    CUresult r = !s ? CUDA_ERROR_INVALID_VALUE : change(s);
    if (r != CUDA_SUCCESS) {
      lock.unlock();
      drop_plan(&plan);
      return r;
    }
    old = e->plan;
    e->plan = plan;
  }
  drop_plan(&old);
  return CUDA_SUCCESS;
}

// Whether an update of an executable may replace `before` by `now`.
CUgraphExecUpdateResult compatible(const Action& before, const Action& now) {
  if (before.type != now.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  if (before.context.get() != now.context.get()) {
    return now.type == CU_GRAPH_NODE_TYPE_KERNEL
               ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
               : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  if (now.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    if (static_cast<const KernelAction&>(before).shape.cooperative !=
        static_cast<const KernelAction&>(now).shape.cooperative)
      return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  }
  if (now.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    const auto& a = static_cast<const CopyAction&>(before).params;
    const auto& b = static_cast<const CopyAction&>(now).params;
    if (a.srcMemoryType != b.srcMemoryType || a.dstMemoryType != b.dstMemoryType)
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if ((a.Height > 1 || a.Depth > 1 || b.Height > 1 || b.Depth > 1) &&
        (a.WidthInBytes != b.WidthInBytes || a.Height != b.Height || a.Depth != b.Depth))
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  if (now.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const auto& a = static_cast<const SetAction&>(before).params;
    const auto& b = static_cast<const SetAction&>(now).params;
    if ((a.height > 1 || b.height > 1) && (a.width != b.width || a.height != b.height))
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  if (now.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || now.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      now.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return &before == &now ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                           : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult set_action(CUgraphExec exec, CUgraphNode node, const Ref<Action>& now) {
  return change(exec, node, [&](Step* s) {
    if (compatible(*s->action, *now) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
    s->action = now;
    return CUDA_SUCCESS;
  });
}

struct Difference {
  CUgraphExecUpdateResult why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  GraphNode* node = nullptr;
  GraphNode* from = nullptr;
};

// Nodes are paired in the order in which they were added.
bool merge(Plan* plan, const Graph& g, Difference* d) {
  if (plan->steps.size() != g.nodes.size()) {
    d->why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return false;
  }
  for (Step& s : plan->steps) {
    GraphNode& n = *g.nodes[static_cast<size_t>(s.index)];
    d->node = &n;
    d->why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (s.after.size() != n.in.size() || s.bodies.size() != n.bodies.size()) return false;
    for (const Edge& e : n.in) {
      bool found = false;
      for (int i : s.after) found = found || i == g.index_of(e.node);
      if (!found) {
        d->from = e.node;
        return false;
      }
    }
    d->why = compatible(*s.action, *n.action);
    if (d->why != CU_GRAPH_EXEC_UPDATE_SUCCESS) return false;
    for (size_t b = 0; b < s.bodies.size(); ++b)
      if (!merge(s.bodies[b].get(), *n.bodies[b], d)) return false;
    s.action = n.action;
  }
  d->node = nullptr;
  d->why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return true;
}

CUresult update(CUgraphExec exec, CUgraph graph, Difference* d) {
  d->why = CU_GRAPH_EXEC_UPDATE_ERROR;
  Ref<GraphExec> e;
  Ref<Graph> g;
  if (CUresult r = find_exec(exec, &e); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_graph(graph, &g); r != CUDA_SUCCESS) return r;
  Ref<Plan> old;
  {
    Lock lock(graph_mutex());
    Ref<Plan> plan = e->plan->copy();
    old = plan;
    if (merge(plan.get(), *g, d)) {
      old = e->plan;
      e->plan = plan;
    }
  }
  drop_plan(&old);
  return d->why == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  Ref<Graph> g;
  if (CUresult r = find_graph(child, &g); r != CUDA_SUCCESS) return r;
  return change(exec, node, [&](Step* s) {
    if (s->action->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
    Difference d;
    return merge(s->bodies[0].get(), *g, &d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult set_params(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& p) {
  if (p.type == CU_GRAPH_NODE_TYPE_GRAPH) return set_child(exec, node, p.graph.graph);
  if (p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || p.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return CUDA_ERROR_NOT_SUPPORTED;
  Ref<Action> a;
  Ref<Graph> child;
  if (CUresult r = action_of(p, &a, &child); r != CUDA_SUCCESS) return r;
  return set_action(exec, node, a);
}

CUresult set_event(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, CUevent event) {
  CUgraphNodeParams p = {};
  p.type = type;
  if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
    p.eventWait.event = event;
  else
    p.eventRecord.event = event;
  return set_params(exec, node, p);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuGraphInstantiate(CUgraphExec* out, CUgraph g, CUgraphNode* bad, char* log,
                              size_t bytes) {
  ENTER(cuGraphInstantiate);
  return instantiate_with_log(out, g, bad, log, bytes);
}
SIMGPU_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph g, CUgraphNode* bad, char* log,
                                 size_t bytes) {
  ENTER(cuGraphInstantiate_v2);
  return instantiate_with_log(out, g, bad, log, bytes);
}
SIMGPU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph g, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags);
  Failure f;
  // The flag to upload needs a stream to do it on.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(out, g, flags, &f);
}
SIMGPU_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph g,
                                        CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
  ENTER(cuGraphInstantiateWithParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Failure f;
  CUresult r = instantiate(out, g, p->flags, &f);
  p->hErrNode_out = f.node;
  p->result_out = f.why;
  if (r == CUDA_SUCCESS && (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
    r = upload(*out, p->hUploadStream);
  return r;
}

SIMGPU_API cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* out) {
  ENTER(cuGraphExecGetFlags);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphExec> e;
  if (CUresult r = find_exec(handle, &e); r != CUDA_SUCCESS) return r;
  *out = e->flags;
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphExecDestroy(CUgraphExec handle) {
  ENTER(cuGraphExecDestroy);
  Ref<GraphExec> e;
  if (CUresult r = find_exec(handle, &e); r != CUDA_SUCCESS) return r;
  if (!state()->handles.remove(e.get())) return CUDA_ERROR_INVALID_VALUE;
  Ref<Plan> plan;
  {
    Lock lock(graph_mutex());
    std::swap(plan, e->plan);
    if (e->only) --e->only->executables;
    e->only = {};
  }
  drop_plan(&plan);
  e->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphUpload(CUgraphExec e, CUstream s) {
  ENTER(cuGraphUpload);
  return upload(e, s);
}
SIMGPU_API cuGraphLaunch(CUgraphExec e, CUstream s) {
  ENTER(cuGraphLaunch);
  return launch(e, s);
}

SIMGPU_API cuGraphExecUpdate(CUgraphExec e, CUgraph g, CUgraphNode* bad,
                             CUgraphExecUpdateResult* why) {
  ENTER(cuGraphExecUpdate);
  Difference d;
  CUresult r = update(e, g, &d);
  if (bad) *bad = d.node ? d.node->handle() : nullptr;
  if (why) *why = d.why;
  return r;
}
SIMGPU_API cuGraphExecUpdate_v2(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo* info) {
  ENTER(cuGraphExecUpdate_v2);
  Difference d;
  CUresult r = update(e, g, &d);
  if (info) {
    info->result = d.why;
    info->errorNode = d.node ? d.node->handle() : nullptr;
    info->errorFromNode = d.from ? d.from->handle() : nullptr;
  }
  return r;
}

SIMGPU_API cuGraphExecNodeSetParams(CUgraphExec e, CUgraphNode n, CUgraphNodeParams* p) {
  ENTER(cuGraphExecNodeSetParams);
  return !p ? CUDA_ERROR_INVALID_VALUE : set_params(e, n, *p);
}
SIMGPU_API cuGraphExecKernelNodeSetParams(CUgraphExec e, CUgraphNode n,
                                          const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  ENTER(cuGraphExecKernelNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams q = {};
  q.type = CU_GRAPH_NODE_TYPE_KERNEL;
  memcpy(&q.kernel, p, sizeof *p);
  return set_params(e, n, q);
}
SIMGPU_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec e, CUgraphNode n,
                                             const CUDA_KERNEL_NODE_PARAMS_v2* p) {
  ENTER(cuGraphExecKernelNodeSetParams_v2);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams q = {};
  q.type = CU_GRAPH_NODE_TYPE_KERNEL;
  memcpy(&q.kernel, p, sizeof *p);
  return set_params(e, n, q);
}
SIMGPU_API cuGraphExecMemcpyNodeSetParams(CUgraphExec e, CUgraphNode n, const CUDA_MEMCPY3D* p,
                                          CUcontext ctx) {
  ENTER(cuGraphExecMemcpyNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams q = {};
  q.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  q.memcpy.copyCtx = ctx;
  q.memcpy.copyParams = *p;
  return set_params(e, n, q);
}
SIMGPU_API cuGraphExecMemsetNodeSetParams(CUgraphExec e, CUgraphNode n,
                                          const CUDA_MEMSET_NODE_PARAMS_v1* p, CUcontext ctx) {
  ENTER(cuGraphExecMemsetNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams q = {};
  q.type = CU_GRAPH_NODE_TYPE_MEMSET;
  memcpy(&q.memset, p, sizeof *p);
  q.memset.ctx = ctx;
  return set_params(e, n, q);
}
SIMGPU_API cuGraphExecHostNodeSetParams(CUgraphExec e, CUgraphNode n,
                                        const CUDA_HOST_NODE_PARAMS* p) {
  ENTER(cuGraphExecHostNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams q = {};
  q.type = CU_GRAPH_NODE_TYPE_HOST;
  q.host.fn = p->fn;
  q.host.userData = p->userData;
  return set_params(e, n, q);
}
SIMGPU_API cuGraphExecChildGraphNodeSetParams(CUgraphExec e, CUgraphNode n, CUgraph child) {
  ENTER(cuGraphExecChildGraphNodeSetParams);
  return set_child(e, n, child);
}
SIMGPU_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec e, CUgraphNode n, CUevent event) {
  ENTER(cuGraphExecEventRecordNodeSetEvent);
  return set_event(e, n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SIMGPU_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec e, CUgraphNode n, CUevent event) {
  ENTER(cuGraphExecEventWaitNodeSetEvent);
  return set_event(e, n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
SIMGPU_API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec e, CUgraphNode n,
                                              const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* p) {
  ENTER(cuGraphExecBatchMemOpNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams q = {};
  q.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  q.memOp.ctx = p->ctx;
  q.memOp.count = p->count;
  q.memOp.paramArray = p->paramArray;
  q.memOp.flags = p->flags;
  return set_params(e, n, q);
}

SIMGPU_API cuGraphNodeSetEnabled(CUgraphExec e, CUgraphNode n, unsigned on) {
  ENTER(cuGraphNodeSetEnabled);
  return change(e, n, [=](Step* s) {
    if (s->action->type != CU_GRAPH_NODE_TYPE_KERNEL &&
        s->action->type != CU_GRAPH_NODE_TYPE_MEMSET &&
        s->action->type != CU_GRAPH_NODE_TYPE_MEMCPY)
      return CUDA_ERROR_INVALID_VALUE;
    s->enabled = on != 0;
    return CUDA_SUCCESS;
  });
}
SIMGPU_API cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* out) {
  ENTER(cuGraphNodeGetEnabled);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphExec> e;
  Ref<GraphNode> n;
  if (CUresult r = find_exec(exec, &e); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_node(node, &n); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  Step* s = e->plan->find(n->uid);
  if (!s) return CUDA_ERROR_INVALID_VALUE;
  *out = s->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}
