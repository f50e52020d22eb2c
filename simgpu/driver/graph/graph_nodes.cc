// Nodes: adding them, reading and changing their parameters.
#include <string.h>

#include "driver/graph/graph.h"

namespace simgpu {
namespace {

CUresult context_for(CUcontext handle, Ref<Context>* out) {
  if (!handle) return current(out);
  *out = context_of(handle);
  return *out && (*out)->active() ? (*out)->error() : CUDA_ERROR_INVALID_CONTEXT;
}

// CUDA_KERNEL_NODE_PARAMS of any version from the second on.
template <class T>
CUresult kernel_action(const T& p, Ref<KernelAction>* out, const KernelAction* attributes_of) {
  if ((!p.func) == (!p.kern)) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f = state()->handles.get<Function>(p.func);
  if (f && !p.ctx) {
    c = Ref<Context>(f->module->context);
  } else if (CUresult r = context_for(p.ctx, &c); r != CUDA_SUCCESS) {
    return r;
  }
  LaunchShape s{{p.gridDimX, p.gridDimY, p.gridDimZ},
                {p.blockDimX, p.blockDimY, p.blockDimZ},
                {1, 1, 1},
                p.sharedMemBytes,
                false};
  const CUlaunchAttribute* attributes = nullptr;
  unsigned count = 0;
  if (attributes_of) {
    attributes = attributes_of->attributes.data();
    count = static_cast<unsigned>(attributes_of->attributes.size());
  }
  auto handle = p.func ? p.func : reinterpret_cast<CUfunction>(p.kern);
  return make_kernel(c, handle, s, p.kernelParams, p.extra, attributes, count, out);
}

CUDA_KERNEL_NODE_PARAMS_v2 upgrade(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  CUDA_KERNEL_NODE_PARAMS_v2 q = {};
  memcpy(&q, &p, sizeof p);
  return q;
}

template <class T>
void describe(KernelAction& k, T* p) {
  p->func = reinterpret_cast<CUfunction>(k.function.get());
  p->gridDimX = k.shape.grid[0];
  p->gridDimY = k.shape.grid[1];
  p->gridDimZ = k.shape.grid[2];
  p->blockDimX = k.shape.block[0];
  p->blockDimY = k.shape.block[1];
  p->blockDimZ = k.shape.block[2];
  p->sharedMemBytes = k.shape.shared;
  p->kernelParams = k.pointers.empty() ? nullptr : k.pointers.data();
  p->extra = nullptr;
}

CUresult copy_action(const CUDA_MEMCPY3D& p, CUcontext ctx, Ref<Action>* out) {
  Ref<Context> c;
  if (CUresult r = context_for(ctx, &c); r != CUDA_SUCCESS) return r;
  Ref<CopyAction> a;
  CUresult r = make_copy(c, p, &a);
  *out = as_action(a);
  return r;
}

CUresult set_action(const CUDA_MEMSET_NODE_PARAMS_v1& p, CUcontext ctx, Ref<Action>* out) {
  Ref<Context> c;
  if (CUresult r = context_for(ctx, &c); r != CUDA_SUCCESS) return r;
  Ref<SetAction> a;
  CUresult r = make_set(c, p, &a);
  *out = as_action(a);
  return r;
}

CUresult host_action(CUhostFn f, void* data, Ref<Action>* out) {
  if (!f) return CUDA_ERROR_INVALID_VALUE;
  *out = Ref<Action>::adopt(new HostAction(f, data));
  return CUDA_SUCCESS;
}

CUresult event_action(CUgraphNodeType type, CUevent handle, Ref<Action>* out) {
  Ref<Event> e = state()->handles.get<Event>(handle);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  *out = Ref<Action>::adopt(new EventAction(type, e));
  return CUDA_SUCCESS;
}

CUresult batch_action(CUcontext ctx, const CUstreamBatchMemOpParams* ops, unsigned count,
                      unsigned flags, Ref<Action>* out) {
  Ref<Context> c;
  if (CUresult r = context_for(ctx, &c); r != CUDA_SUCCESS) return r;
  Ref<BatchAction> a;
  CUresult r = make_batch(c, ops, count, flags, &a);
  *out = as_action(a);
  return r;
}

CUresult alloc_action(const CUDA_MEM_ALLOC_NODE_PARAMS_v1& p, Ref<Action>* out) {
  if (p.bytesize == 0 || p.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      p.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (p.accessDescCount != 0 && !p.accessDescs))
    return CUDA_ERROR_INVALID_VALUE;
  if (p.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  Device* d = device_of(p.poolProps.location.id);
  if (!d) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  if (CUresult r = current(&c); r != CUDA_SUCCESS) return r;
  if (c->device != d) {
    Lock lock(state()->contexts_mutex);
    c = d->primary;
    if (!c || !c->active()) return CUDA_ERROR_INVALID_CONTEXT;
  }
  Ref<GraphMemory> m = GraphMemory::make(c, p);
  if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = Ref<Action>::adopt(new AllocAction(m));
  return CUDA_SUCCESS;
}

CUresult free_action(CUdeviceptr address, Ref<Action>* out) {
  Ref<GraphMemory> m = graph_memory_at(address);
  if (!m) return CUDA_ERROR_INVALID_VALUE;
  *out = Ref<Action>::adopt(new FreeAction(m->context, address));
  return CUDA_SUCCESS;
}

std::vector<Ref<Conditional>>* conditionals = nullptr;  // guarded by graph_mutex()

CUresult conditional_action(const CUDA_CONDITIONAL_NODE_PARAMS& p, Ref<Action>* out) {
  Ref<Conditional> v = conditional_of(p.handle);
  if (!v || p.size == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((p.type == CU_GRAPH_COND_TYPE_WHILE && p.size != 1) ||
      (p.type == CU_GRAPH_COND_TYPE_IF && p.size > 2) || p.type > CU_GRAPH_COND_TYPE_SWITCH)
    return CUDA_ERROR_INVALID_VALUE;
  *out = Ref<Action>::adopt(new ConditionalAction(v->context, v, p.type, p.size));
  return CUDA_SUCCESS;
}

struct Dependencies {
  const CUgraphNode* nodes;
  const CUgraphEdgeData* data;
  size_t count;
};

// Adds a node and its dependencies, or nothing if one of the dependencies is not valid.
CUresult add_node(CUgraphNode* out, CUgraph handle, const Dependencies& d, Ref<Action> action,
                  const Ref<Graph>& child = {}, bool move_child = false,
                  GraphNode** added = nullptr) {
  if (!out || (d.count != 0 && !d.nodes)) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  std::vector<Ref<GraphNode>> before;
  for (size_t i = 0; i < d.count; ++i) {
    Ref<GraphNode> n;
    if (CUresult r = find_node(d.nodes[i], &n); r != CUDA_SUCCESS) return r;
    if (n->graph != g.get()) return CUDA_ERROR_INVALID_VALUE;
    for (const Ref<GraphNode>& b : before)
      if (b.get() == n.get()) return CUDA_ERROR_INVALID_VALUE;
    before.push_back(n);
  }
  if (action->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    // Each allocation is freed by at most one node; one of another graph has no allocation here.
    uint64_t address = static_cast<FreeAction*>(action.get())->address;
    int allocated = 0, freed = 0;
    for (const Ref<GraphNode>& n : g->nodes) {
      if (n->type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        allocated += static_cast<AllocAction*>(n->action.get())->memory->address == address;
      if (n->type() == CU_GRAPH_NODE_TYPE_MEM_FREE)
        freed += static_cast<FreeAction*>(n->action.get())->address == address;
    }
    if (freed >= (allocated > 0 ? allocated : 1)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (action->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    std::vector<GraphNode*> past;
    for (const Ref<GraphNode>& b : before) past.push_back(b.get());
    g->reuse_memory(static_cast<AllocAction*>(action.get()), past);
  }
  GraphNode* n = g->add(std::move(action));
  for (size_t i = 0; i < before.size(); ++i)
    g->connect(before[i].get(), n, d.data ? d.data[i] : CUgraphEdgeData{});
  if (child) {
    if (move_child) {
      child->parent = n;
      n->bodies.push_back(child);
      child->release();  // the handle is the node's now
    } else {
      n->bodies.push_back(Graph::make(n));
      n->bodies.back()->copy_from(*child);
    }
  }
  if (added) *added = n;
  *out = n->handle();
  return CUDA_SUCCESS;
}

CUresult check_child(const Graph& parent, const Graph& child, bool move) {
  if (&parent == &child) return CUDA_ERROR_INVALID_VALUE;
  if (child.holds(CU_GRAPH_NODE_TYPE_CONDITIONAL)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!move &&
      (child.holds(CU_GRAPH_NODE_TYPE_MEM_ALLOC) || child.holds(CU_GRAPH_NODE_TYPE_MEM_FREE)))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (move && (child.parent || child.executables != 0)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult add_child(CUgraphNode* out, CUgraph handle, const Dependencies& d, CUgraph child,
                   bool move) {
  Ref<Graph> g, c;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_graph(child, &c); r != CUDA_SUCCESS) return r;
  if (CUresult r = check_child(*g, *c, move); r != CUDA_SUCCESS) return r;
  return add_node(out, handle, d, Ref<Action>::adopt(new EmptyAction(CU_GRAPH_NODE_TYPE_GRAPH)), c,
                  move);
}

CUresult add_any(CUgraphNode* out, CUgraph graph, const Dependencies& d, CUgraphNodeParams* p) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (p->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return add_child(out, graph, d, p->graph.graph,
                     p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  Ref<Action> action;
  Ref<Graph> none;
  if (CUresult r = action_of(*p, &action, &none); r != CUDA_SUCCESS) return r;
  GraphNode* n = nullptr;
  if (CUresult r = add_node(out, graph, d, action, {}, false, &n); r != CUDA_SUCCESS) return r;
  if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    p->alloc.dptr = static_cast<AllocAction*>(action.get())->memory->address;
  if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    Lock lock(graph_mutex());
    for (unsigned i = 0; i < p->conditional.size; ++i) {
      n->bodies.push_back(Graph::make(n));
      n->body_handles.push_back(n->bodies.back()->handle());
    }
    p->conditional.phGraph_out = n->body_handles.data();
  }
  return CUDA_SUCCESS;
}

// The action of a node of that type.
template <class T>
CUresult action_in(CUgraphNode handle, CUgraphNodeType type, Ref<GraphNode>* n, T** out) {
  if (CUresult r = find_node(handle, n); r != CUDA_SUCCESS) return r;
  if ((*n)->type() != type) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<T*>((*n)->action.get());
  return CUDA_SUCCESS;
}

// Gives the caller what `read` finds in the action of a node of that type.
template <class T, class Out, class Read>
CUresult tell(CUgraphNode handle, CUgraphNodeType type, Out* out, Read read) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  T* action;
  if (CUresult r = action_in(handle, type, &n, &action); r != CUDA_SUCCESS) return r;
  *out = read(*action);
  return CUDA_SUCCESS;
}

CUresult replace(CUgraphNode handle, const Ref<Action>& action) {
  Ref<GraphNode> n;
  if (CUresult r = find_node(handle, &n); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  if (n->type() != action->type) return CUDA_ERROR_INVALID_VALUE;
  n->action = action;
  return CUDA_SUCCESS;
}

template <class T>
CUresult set_kernel(CUgraphNode handle, const T& p) {
  Ref<GraphNode> n;
  KernelAction* old;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_KERNEL, &n, &old); r != CUDA_SUCCESS)
    return r;
  Ref<KernelAction> k;
  if (CUresult r = kernel_action(p, &k, old); r != CUDA_SUCCESS) return r;
  return replace(handle, as_action(k));
}

CUresult event_of(CUgraphNode handle, CUgraphNodeType type, CUevent* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  EventAction* a;
  if (CUresult r = action_in(handle, type, &n, &a); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUevent>(a->event.get());
  return CUDA_SUCCESS;
}

CUresult set_event(CUgraphNode handle, CUgraphNodeType type, CUevent event) {
  Ref<Action> a;
  if (CUresult r = event_action(type, event, &a); r != CUDA_SUCCESS) return r;
  return replace(handle, a);
}

}  // namespace

Ref<Conditional> conditional_of(uint64_t handle) {
  Lock lock(graph_mutex());
  if (!conditionals) return {};
  for (const Ref<Conditional>& c : *conditionals)
    if (c->handle == handle) return c;
  return {};
}

bool set_conditional(uint64_t handle, uint32_t value) {
  Ref<Conditional> c = conditional_of(handle);
  if (c) c->value.store(value);
  return static_cast<bool>(c);
}

CUresult action_of(const CUgraphNodeParams& p, Ref<Action>* out, Ref<Graph>* child) {
  switch (static_cast<int>(p.type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      Ref<KernelAction> k;
      CUresult r = kernel_action(p.kernel, &k, nullptr);
      *out = as_action(k);
      return r;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (p.memcpy.flags != 0 || p.memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return copy_action(p.memcpy.copyParams, p.memcpy.copyCtx, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS_v1 q;
      memcpy(&q, &p.memset, sizeof q);
      return set_action(q, p.memset.ctx, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_action(p.host.fn, p.host.userData, out);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      *out = Ref<Action>::adopt(new EmptyAction(CU_GRAPH_NODE_TYPE_GRAPH));
      return find_graph(p.graph.graph, child);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *out = Ref<Action>::adopt(new EmptyAction);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_action(p.type, p.eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_action(p.type, p.eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS_v1 q;
      static_assert(sizeof q == sizeof p.alloc);
      memcpy(&q, &p.alloc, sizeof q);
      return alloc_action(q, out);
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_action(p.free.dptr, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return batch_action(p.memOp.ctx, p.memOp.paramArray, p.memOp.count, p.memOp.flags, out);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return conditional_action(p.conditional, out);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuGraphAddNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                          CUgraphNodeParams* p) {
  ENTER(cuGraphAddNode);
  return add_any(out, g, {deps, nullptr, n}, p);
}
SIMGPU_API cuGraphAddNode_v2(CUgraphNode* out, CUgraph g, const CUgraphNode* deps,
                             const CUgraphEdgeData* data, size_t n, CUgraphNodeParams* p) {
  ENTER(cuGraphAddNode_v2);
  return add_any(out, g, {deps, data, n}, p);
}

SIMGPU_API cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* p) {
  ENTER(cuGraphNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) return set_kernel(handle, p->kernel);
  if (p->type == CU_GRAPH_NODE_TYPE_GRAPH || p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
      p->type == CU_GRAPH_NODE_TYPE_MEM_FREE || p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    return CUDA_ERROR_NOT_SUPPORTED;
  Ref<Action> a;
  Ref<Graph> child;
  if (CUresult r = action_of(*p, &a, &child); r != CUDA_SUCCESS) return r;
  return replace(handle, a);
}

SIMGPU_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  ENTER(cuGraphAddKernelNode);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<KernelAction> k;
  if (CUresult r = kernel_action(upgrade(*p), &k, nullptr); r != CUDA_SUCCESS) return r;
  return add_node(out, g, {deps, nullptr, n}, as_action(k));
}
SIMGPU_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                   const CUDA_KERNEL_NODE_PARAMS_v2* p) {
  ENTER(cuGraphAddKernelNode_v2);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<KernelAction> k;
  if (CUresult r = kernel_action(*p, &k, nullptr); r != CUDA_SUCCESS) return r;
  return add_node(out, g, {deps, nullptr, n}, as_action(k));
}
SIMGPU_API cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1* p) {
  ENTER(cuGraphKernelNodeGetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  KernelAction* k;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_KERNEL, &n, &k); r != CUDA_SUCCESS)
    return r;
  describe(*k, p);
  return CUDA_SUCCESS;
}
SIMGPU_API cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2* p) {
  ENTER(cuGraphKernelNodeGetParams_v2);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  KernelAction* k;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_KERNEL, &n, &k); r != CUDA_SUCCESS)
    return r;
  describe(*k, p);
  p->kern = nullptr;
  p->ctx = k->context->handle();
  return CUDA_SUCCESS;
}
SIMGPU_API cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  ENTER(cuGraphKernelNodeSetParams);
  return !p ? CUDA_ERROR_INVALID_VALUE : set_kernel(handle, upgrade(*p));
}
SIMGPU_API cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v2* p) {
  ENTER(cuGraphKernelNodeSetParams_v2);
  return !p ? CUDA_ERROR_INVALID_VALUE : set_kernel(handle, *p);
}

namespace {
// A copy of a node's kernel action, which may be changed: actions in a graph are shared.
CUresult own_kernel(GraphNode& n, Ref<KernelAction>* out) {
  auto* old = static_cast<KernelAction*>(n.action.get());
  return make_kernel(old->context, reinterpret_cast<CUfunction>(old->function.get()), old->shape,
                     old->pointers.data(), nullptr, old->attributes.data(),
                     static_cast<unsigned>(old->attributes.size()), out);
}
}  // namespace

SIMGPU_API cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                         const CUkernelNodeAttrValue* value) {
  ENTER(cuGraphKernelNodeSetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  KernelAction* old;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_KERNEL, &n, &old); r != CUDA_SUCCESS)
    return r;
  Ref<KernelAction> k;
  if (CUresult r = own_kernel(*n, &k); r != CUDA_SUCCESS) return r;
  CUlaunchAttribute a = {};
  a.id = id;
  a.value = *value;
  if (CUresult r = k->set_attribute(a); r != CUDA_SUCCESS) return r;
  return replace(handle, as_action(k));
}

SIMGPU_API cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                         CUkernelNodeAttrValue* value) {
  ENTER(cuGraphKernelNodeGetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  KernelAction* k;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_KERNEL, &n, &k); r != CUDA_SUCCESS)
    return r;
  memset(value, 0, sizeof *value);
  if (CUlaunchAttribute* a = k->attribute(id)) {
    *value = a->value;
    return CUDA_SUCCESS;
  }
  switch (static_cast<int>(id)) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value->memSyncDomainMap = {0, 1};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value->sharedMemCarveout = static_cast<unsigned>(-1);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIMGPU_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  ENTER(cuGraphKernelNodeCopyAttributes);
  Ref<GraphNode> a, b;
  KernelAction *x, *y;
  if (CUresult r = action_in(to, CU_GRAPH_NODE_TYPE_KERNEL, &a, &x); r != CUDA_SUCCESS) return r;
  if (CUresult r = action_in(from, CU_GRAPH_NODE_TYPE_KERNEL, &b, &y); r != CUDA_SUCCESS) return r;
  Ref<KernelAction> k;
  if (CUresult r = own_kernel(*a, &k); r != CUDA_SUCCESS) return r;
  for (const CUlaunchAttribute& attribute : y->attributes)
    if (CUresult r = k->set_attribute(attribute); r != CUDA_SUCCESS) return r;
  return replace(to, as_action(k));
}

SIMGPU_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                const CUDA_MEMCPY3D* p, CUcontext ctx) {
  ENTER(cuGraphAddMemcpyNode);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = copy_action(*p, ctx, &a); r != CUDA_SUCCESS) return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* p) {
  ENTER(cuGraphMemcpyNodeGetParams);
  return tell<CopyAction>(handle, CU_GRAPH_NODE_TYPE_MEMCPY, p,
                          [](const CopyAction& a) { return a.params; });
}
SIMGPU_API cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D* p) {
  ENTER(cuGraphMemcpyNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  CopyAction* old;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_MEMCPY, &n, &old); r != CUDA_SUCCESS)
    return r;
  Ref<CopyAction> a;
  if (CUresult r = make_copy(old->context, *p, &a); r != CUDA_SUCCESS) return r;
  return replace(handle, as_action(a));
}

SIMGPU_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                const CUDA_MEMSET_NODE_PARAMS_v1* p, CUcontext ctx) {
  ENTER(cuGraphAddMemsetNode);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = set_action(*p, ctx, &a); r != CUDA_SUCCESS) return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS_v1* p) {
  ENTER(cuGraphMemsetNodeGetParams);
  return tell<SetAction>(handle, CU_GRAPH_NODE_TYPE_MEMSET, p,
                         [](const SetAction& a) { return a.params; });
}
SIMGPU_API cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS_v1* p) {
  ENTER(cuGraphMemsetNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  SetAction* old;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_MEMSET, &n, &old); r != CUDA_SUCCESS)
    return r;
  Ref<SetAction> a;
  if (CUresult r = make_set(old->context, *p, &a); r != CUDA_SUCCESS) return r;
  return replace(handle, as_action(a));
}

SIMGPU_API cuGraphAddHostNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                              const CUDA_HOST_NODE_PARAMS* p) {
  ENTER(cuGraphAddHostNode);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = host_action(p->fn, p->userData, &a); r != CUDA_SUCCESS) return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* p) {
  ENTER(cuGraphHostNodeGetParams);
  return tell<HostAction>(handle, CU_GRAPH_NODE_TYPE_HOST, p, [](const HostAction& a) {
    return CUDA_HOST_NODE_PARAMS{a.function, a.data};
  });
}
SIMGPU_API cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* p) {
  ENTER(cuGraphHostNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = host_action(p->fn, p->userData, &a); r != CUDA_SUCCESS) return r;
  return replace(handle, a);
}

SIMGPU_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                    CUgraph child) {
  ENTER(cuGraphAddChildGraphNode);
  return add_child(out, g, {deps, nullptr, n}, child, false);
}
SIMGPU_API cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  ENTER(cuGraphChildGraphNodeGetGraph);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  Action* a;
  if (CUresult r = action_in(handle, CU_GRAPH_NODE_TYPE_GRAPH, &n, &a); r != CUDA_SUCCESS) return r;
  *out = n->bodies[0]->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n) {
  ENTER(cuGraphAddEmptyNode);
  return add_node(out, g, {deps, nullptr, n}, Ref<Action>::adopt(new EmptyAction));
}

SIMGPU_API cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                     CUevent event) {
  ENTER(cuGraphAddEventRecordNode);
  Ref<Action> a;
  if (CUresult r = event_action(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &a); r != CUDA_SUCCESS)
    return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphEventRecordNodeGetEvent(CUgraphNode n, CUevent* out) {
  ENTER(cuGraphEventRecordNodeGetEvent);
  return event_of(n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out);
}
SIMGPU_API cuGraphEventRecordNodeSetEvent(CUgraphNode n, CUevent event) {
  ENTER(cuGraphEventRecordNodeSetEvent);
  return set_event(n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SIMGPU_API cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                   CUevent event) {
  ENTER(cuGraphAddEventWaitNode);
  Ref<Action> a;
  if (CUresult r = event_action(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &a); r != CUDA_SUCCESS)
    return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphEventWaitNodeGetEvent(CUgraphNode n, CUevent* out) {
  ENTER(cuGraphEventWaitNodeGetEvent);
  return event_of(n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out);
}
SIMGPU_API cuGraphEventWaitNodeSetEvent(CUgraphNode n, CUevent event) {
  ENTER(cuGraphEventWaitNodeSetEvent);
  return set_event(n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SIMGPU_API cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* p) {
  ENTER(cuGraphAddBatchMemOpNode);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = batch_action(p->ctx, p->paramArray, p->count, p->flags, &a); r != CUDA_SUCCESS)
    return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* p) {
  ENTER(cuGraphBatchMemOpNodeGetParams);
  return tell<BatchAction>(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, p, [](const BatchAction& a) {
    return CUDA_BATCH_MEM_OP_NODE_PARAMS_v1{
        a.context->handle(), static_cast<unsigned>(a.params.size()),
        const_cast<CUstreamBatchMemOpParams*>(a.params.data()), 0};
  });
}
SIMGPU_API cuGraphBatchMemOpNodeSetParams(CUgraphNode handle,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* p) {
  ENTER(cuGraphBatchMemOpNodeSetParams);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = batch_action(p->ctx, p->paramArray, p->count, p->flags, &a); r != CUDA_SUCCESS)
    return r;
  return replace(handle, a);
}

SIMGPU_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                  CUDA_MEM_ALLOC_NODE_PARAMS_v1* p) {
  ENTER(cuGraphAddMemAllocNode);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Ref<Action> a;
  if (CUresult r = alloc_action(*p, &a); r != CUDA_SUCCESS) return r;
  if (CUresult r = add_node(out, g, {deps, nullptr, n}, a); r != CUDA_SUCCESS) return r;
  p->dptr = static_cast<AllocAction*>(a.get())->memory->address;
  return CUDA_SUCCESS;
}
SIMGPU_API cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS_v1* p) {
  ENTER(cuGraphMemAllocNodeGetParams);
  return tell<AllocAction>(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, p,
                           [](const AllocAction& a) { return a.memory->params; });
}
SIMGPU_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph g, const CUgraphNode* deps, size_t n,
                                 CUdeviceptr address) {
  ENTER(cuGraphAddMemFreeNode);
  Ref<Action> a;
  if (CUresult r = free_action(address, &a); r != CUDA_SUCCESS) return r;
  return add_node(out, g, {deps, nullptr, n}, a);
}
SIMGPU_API cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* out) {
  ENTER(cuGraphMemFreeNodeGetParams);
  return tell<FreeAction>(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, out,
                          [](const FreeAction& a) { return a.address; });
}

// Handles of conditionals are seen by kernels: the same in every process that creates the same ones
// in the same order.
SIMGPU_API cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph graph,
                                          CUcontext ctx, unsigned standard, unsigned flags) {
  ENTER(cuGraphConditionalHandleCreate);
  if (!out || flags > CU_GRAPH_COND_ASSIGN_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(graph, &g); r != CUDA_SUCCESS) return r;
  auto c = Ref<Conditional>::adopt(new Conditional);
  if (CUresult r = context_for(ctx, &c->context); r != CUDA_SUCCESS) return r;
  c->standard = standard;
  c->flags = flags;
  Lock lock(graph_mutex());
  if (!conditionals) conditionals = new std::vector<Ref<Conditional>>;
  c->handle = (conditionals->size() + 1) << 8 | (state()->options.seed & 0xff);
  conditionals->push_back(c);
  *out = c->handle;
  return CUDA_SUCCESS;
}
