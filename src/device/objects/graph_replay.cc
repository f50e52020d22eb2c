// Graphs and their executables, made again from their records.
#include <initializer_list>

#include "device/base/times.h"
#include "device/capture/capture.h"
#include "device/objects/arrays.h"
#include "device/objects/conditionals.h"
#include "device/objects/graph_parts.h"
#include "device/objects/graphs.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt::device {

namespace {

CUfunction function_now(uint64_t name) {
  bool kernel;
  {
    MutexLock guard(registry().lock);
    kernel = registry().find<KernelObject>(ObjectType::kKernel, name) != nullptr;
  }
  if (!kernel) return real_of<CUfunction>(Kind::kFunction, name);
  CUfunction its = nullptr;
  real().cuKernelGetFunction(&its, real_of<CUkernel>(Kind::kKernel, name));
  return its;
}

// Launches of a graph record an event unseen, so its time before the restore cannot be kept apart
// from later ones: from now on the driver's word counts.
void forget_time(uint64_t event) {
  MutexLock guard(registry().lock);
  auto* e = registry().find<EventObject>(ObjectType::kEvent, event);
  if (!e || !e->remembered) return;
  e->remembered = false;
  --remembered_events;
}

// What a node's record is as parameters of a call, with the driver's handles.
struct KernelCall {
  CUDA_KERNEL_NODE_PARAMS_v2 params;
  Vector<void*> pointers;
  explicit KernelCall(const NodeRecord* node) : params(node->kernel) {
    params.func = function_now(node->object);
    params.kern = nullptr;
    params.ctx = real_of<CUcontext>(Kind::kContext, node->context);
    size_t offset = 0;
    for (size_t i = 0; real().cuFuncGetParamInfo(params.func, i, &offset, nullptr) == CUDA_SUCCESS;
         ++i)
      pointers.push(node->arguments + offset);
    params.kernelParams = pointers.empty() ? nullptr : pointers.data();
  }
};
CUDA_MEMCPY3D copy_now(const NodeRecord* node) {
  CUDA_MEMCPY3D params = node->copy;
  if (params.dstMemoryType == CU_MEMORYTYPE_ARRAY)
    params.dstArray = real_of<CUarray>(Kind::kArray, bits(params.dstArray));
  if (params.srcMemoryType == CU_MEMORYTYPE_ARRAY)
    params.srcArray = real_of<CUarray>(Kind::kArray, bits(params.srcArray));
  return params;
}
CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 operations_now(NodeRecord* node) {
  return {real_of<CUcontext>(Kind::kContext, node->context),
          static_cast<unsigned>(node->operations.size()), node->operations.data(), 0};
}

// Whether an earlier node than number i allocates at the same address.
bool allocated_before(const GraphRecord* record, uint32_t i) {
  const NodeRecord* node = record->nodes[i];
  if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return false;
  for (uint32_t k = 0; k < i; ++k)
    if (record->nodes[k]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        record->nodes[k]->memory.dptr == node->memory.dptr)
      return true;
  return false;
}
bool reuses_memory(const GraphRecord* record) {
  for (uint32_t i = 0; i < record->nodes.size(); ++i)
    if (allocated_before(record, i)) return true;
  return false;
}

struct Maker {
  DeviceReport* report;
  bool names;  // the nodes get their names back
  // A launch would need the memory that these nodes have; the address must be the old one.
  bool cannot(const char* what, CUresult result) const {
    const char* text = nullptr;
    real().cuGetErrorName(result, &text);
    return report->fail(kExitIncompatible, "%s cannot be made again: %s (%d)", what,
                        text ? text : "unknown error", static_cast<int>(result));
  }

  CUresult add_kernel(CUgraph graph, NodeRecord* node) const {
    KernelCall call(node);
    CUresult result = real().cuGraphAddKernelNode_v2(&node->now, graph, nullptr, 0, &call.params);
    for (CUlaunchAttribute& a : node->attributes)
      if (result == CUDA_SUCCESS)
        result = real().cuGraphKernelNodeSetAttribute(node->now, a.id, &a.value);
    return result;
  }

  // The driver gives an allocation the address of one that the graph frees before: it must know
  // what this one depends on.
  CUresult add_reusing_allocation(CUgraph graph, NodeRecord* node,
                                  Vector<CUgraphNode>& past) const {
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 params = node->memory;
    CUresult result =
        real().cuGraphAddMemAllocNode(&node->now, graph, past.data(), past.size(), &params);
    return result == CUDA_SUCCESS ? same_place(node, params.dptr) : result;
  }

  CUresult same_place(const NodeRecord* node, CUdeviceptr now) const {
    if (now == node->memory.dptr) return CUDA_SUCCESS;
    report->fail(
        kExitIncompatible,
        "memory that a graph allocates was at 0x%lx and is at 0x%lx after the restore; pointers "
        "to it would be wrong",
        static_cast<unsigned long>(node->memory.dptr), static_cast<unsigned long>(now));
    return CUDA_ERROR_ALREADY_MAPPED;
  }

  // Places that other graphs have left are filled for a moment, until the old address comes. Each
  // device has a region for them, all of one size, and not all may be asked for again.
  CUresult add_allocation(CUgraph graph, NodeRecord* node) const {
    realm_expect_at(node->memory.dptr);
    Vector<CUgraph> fillers;
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 params = {};
    CUresult result = CUDA_SUCCESS;
    for (int attempt = 0; attempt < 64 && result == CUDA_SUCCESS; ++attempt) {
      CUgraph trial = nullptr;
      CUgraphNode ignored;
      result = real().cuGraphCreate(&trial, 0);
      params = node->memory;
      if (result == CUDA_SUCCESS)
        result = real().cuGraphAddMemAllocNode(&ignored, trial, nullptr, 0, &params);
      if (result == CUDA_SUCCESS && params.dptr == node->memory.dptr) {
        real().cuGraphDestroy(trial);  // its place is the next one that is given
        break;
      }
      if (trial) fillers.push(trial);
    }
    params = node->memory;
    if (result == CUDA_SUCCESS)
      result = real().cuGraphAddMemAllocNode(&node->now, graph, nullptr, 0, &params);
    for (CUgraph filler : fillers) real().cuGraphDestroy(filler);
    return result == CUDA_SUCCESS ? same_place(node, params.dptr) : result;
  }

  bool add_child(CUgraph graph, NodeRecord* node) const {
    CUgraph child = nullptr, embedded = nullptr;
    CUresult result = real().cuGraphCreate(&child, 0);
    if (result != CUDA_SUCCESS) return cannot("a graph", result);
    Maker unnamed{report, false};
    bool ok = unnamed.fill(child, node->child);
    if (ok) {
      result = real().cuGraphAddChildGraphNode(&node->now, graph, nullptr, 0, child);
      if (result == CUDA_SUCCESS)
        result = real().cuGraphChildGraphNodeGetGraph(node->now, &embedded);
      ok = result == CUDA_SUCCESS ? adopt(embedded, node->child) : cannot("a child graph", result);
    }
    real().cuGraphDestroy(child);
    return ok;
  }

  bool add_conditional(CUgraph graph, NodeRecord* node) const {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = node->condition;
    params.conditional.type = node->condition_type;
    params.conditional.size = static_cast<unsigned>(node->bodies.size());
    params.conditional.ctx = real_of<CUcontext>(Kind::kContext, node->context);
    CUresult result =
        present(real().cuGraphAddNode_v2)
            ? real().cuGraphAddNode_v2(&node->now, graph, nullptr, nullptr, 0, &params)
            : real().cuGraphAddNode(&node->now, graph, nullptr, 0, &params);
    if (result != CUDA_SUCCESS) return cannot("a conditional node", result);
    for (size_t i = 0; i < node->bodies.size(); ++i) {
      GraphRecord* body = node->bodies[i];
      CUgraph now = params.conditional.phGraph_out[i];
      if (names) bind(Kind::kGraph, body->name, bits(now));
      if (!fill(now, body)) return false;
    }
    return true;
  }

  // The nodes of a clone instead of those it was cloned from.
  bool adopt(CUgraph clone, GraphRecord* record) const {
    if (names && record->name) bind(Kind::kGraph, record->name, bits(clone));
    for (NodeRecord* node : record->nodes) {
      CUgraphNode found = nullptr;
      CUresult result = real().cuGraphNodeFindInClone(&found, node->now, clone);
      if (result != CUDA_SUCCESS) return cannot("a node of a child graph", result);
      node->now = found;
      if (names) bind(Kind::kGraphNode, node->name, bits(found));
      if (!node->child) continue;
      CUgraph inner = nullptr;
      result = real().cuGraphChildGraphNodeGetGraph(found, &inner);
      if (result != CUDA_SUCCESS) return cannot("a child graph", result);
      if (!adopt(inner, node->child)) return false;
    }
    return true;
  }

  // `past`: of an allocation that has the address of an earlier one, the nodes that it depends on.
  bool add(CUgraph graph, NodeRecord* node, Vector<CUgraphNode>* past = nullptr) const {
    WithContext with(node->context ? node->context : context_for(0, 0));
    auto context = real_of<CUcontext>(Kind::kContext, node->context);
    auto event = real_of<CUevent>(Kind::kEvent, node->object);
    CUgraphNode* out = &node->now;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    switch (static_cast<int>(node->type)) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        result = add_kernel(graph, node);
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D params = copy_now(node);
        result = real().cuGraphAddMemcpyNode(out, graph, nullptr, 0, &params, context);
        break;
      }
      case CU_GRAPH_NODE_TYPE_MEMSET:
        result = real().cuGraphAddMemsetNode(out, graph, nullptr, 0, &node->set, context);
        break;
      case CU_GRAPH_NODE_TYPE_HOST:
        result = real().cuGraphAddHostNode(out, graph, nullptr, 0, &node->host);
        break;
      case CU_GRAPH_NODE_TYPE_GRAPH:
        if (!add_child(graph, node)) return false;
        result = CUDA_SUCCESS;
        break;
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        if (!add_conditional(graph, node)) return false;
        result = CUDA_SUCCESS;
        break;
      case CU_GRAPH_NODE_TYPE_EMPTY:
        result = real().cuGraphAddEmptyNode(out, graph, nullptr, 0);
        break;
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        result = real().cuGraphAddEventWaitNode(out, graph, nullptr, 0, event);
        break;
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        forget_time(node->object);
        result = real().cuGraphAddEventRecordNode(out, graph, nullptr, 0, event);
        break;
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        result = past ? add_reusing_allocation(graph, node, *past) : add_allocation(graph, node);
        if (result == CUDA_ERROR_ALREADY_MAPPED) return false;  // told already
        break;
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        result = real().cuGraphAddMemFreeNode(out, graph, nullptr, 0, node->address);
        break;
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 params = operations_now(node);
        result = real().cuGraphAddBatchMemOpNode(out, graph, nullptr, 0, &params);
        break;
      }
    }
    if (result != CUDA_SUCCESS) return cannot("a node of a graph", result);
    if (names) bind(Kind::kGraphNode, node->name, bits(node->now));
    return true;
  }

  bool connect(CUgraph graph, GraphRecord* record, const EdgeRecord& e) const {
    CUgraphNode from = record->nodes[e.from]->now, to = record->nodes[e.to]->now;
    CUresult result = present(real().cuGraphAddDependencies_v2)
                          ? real().cuGraphAddDependencies_v2(graph, &from, &to, &e.data, 1)
                          : real().cuGraphAddDependencies(graph, &from, &to, 1);
    return result == CUDA_SUCCESS || cannot("an edge of a graph", result);
  }

  bool fill(CUgraph graph, GraphRecord* record) const {
    if (reuses_memory(record)) return fill_in_order(graph, record);
    for (NodeRecord* node : record->nodes)
      if (!add(graph, node)) return false;
    for (const EdgeRecord& e : record->edges)
      if (!connect(graph, record, e)) return false;
    return true;
  }

  // Each node with the edges to those before it.
  bool fill_in_order(CUgraph graph, GraphRecord* record) const {
    for (uint32_t i = 0; i < record->nodes.size(); ++i) {
      NodeRecord* node = record->nodes[i];
      const bool reuses = allocated_before(record, i);
      Vector<CUgraphNode> past;
      for (const EdgeRecord& e : record->edges)
        if (reuses && e.to == i && e.from < i && !past.push(record->nodes[e.from]->now))
          return cannot("a node of a graph", CUDA_ERROR_OUT_OF_MEMORY);
      if (!add(graph, node, reuses ? &past : nullptr)) return false;
      for (const EdgeRecord& e : record->edges) {
        const bool made = reuses && e.to == i;  // with the node
        if (!made && (e.from > e.to ? e.from : e.to) == i && !connect(graph, record, e))
          return false;
      }
    }
    return true;
  }
};

void disable_nodes(CUgraphExec executable, GraphRecord* record) {
  for (NodeRecord* node : record->nodes) {
    if (node->disabled) real().cuGraphNodeSetEnabled(executable, node->now, 0);
    any_inner(node, [&](GraphRecord* inner) {
      disable_nodes(executable, inner);
      return false;
    });
  }
}

// Memory of graphs and conditional handles belong to a graph and to the executables of it: all must
// be one.
bool owns(const GraphRecord* record) {
  for (const NodeRecord* node : record->nodes)
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL || any_inner(node, owns))
      return true;
  return false;
}

bool has_handle(const GraphRecord* record, CUgraphConditionalHandle handle) {
  for (const NodeRecord* node : record->nodes)
    if ((!node->bodies.empty() && node->condition == handle) ||
        any_inner(node, [&](GraphRecord* inner) { return has_handle(inner, handle); }))
      return true;
  return false;
}

// The graph itself that an executable was made from, when that is still there and must be it.
GraphObject* source_of(const GraphExecObject* e) {
  if (!owns(e->record)) return nullptr;
  MutexLock guard(registry().lock);
  auto* source = registry().find<GraphObject>(ObjectType::kGraph, e->record->name);
  return source && source->record ? source : nullptr;
}

CUgraph graph_of_handle(const ConditionalHandle& handle) {
  MutexLock guard(registry().lock);
  if (handle.graph && registry().find<GraphObject>(ObjectType::kGraph, handle.graph))
    return real_of<CUgraph>(Kind::kGraph, handle.graph);
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kGraphExec) continue;
    auto* e = static_cast<GraphExecObject*>(o);
    if (e->base && e->record && has_handle(e->record, handle.value)) return e->base;
  }
  return nullptr;
}

template <typename T>
bool same_bytes(const T& a, const T& b) {
  return !__builtin_memcmp(&a, &b, sizeof a);
}
template <typename T>
bool same_list(const Vector<T>& a, const Vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || !__builtin_memcmp(a.data(), b.data(), a.size() * sizeof(T)));
}

bool same_kernel(const NodeRecord* a, const NodeRecord* b) {
  CUDA_KERNEL_NODE_PARAMS_v2 shapes[] = {a->kernel, b->kernel};
  for (auto& shape : shapes) {
    shape.func = nullptr;
    shape.kern = nullptr;
    shape.ctx = nullptr;
  }
  return same_bytes(shapes[0], shapes[1]) && a->context == b->context &&
         a->argument_bytes == b->argument_bytes &&
         (!a->argument_bytes || !__builtin_memcmp(a->arguments, b->arguments, a->argument_bytes));
}

bool same_parameters(const NodeRecord* a, const NodeRecord* b) {
  if (a->object != b->object) return false;
  switch (static_cast<int>(a->type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return same_kernel(a, b);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return same_bytes(a->copy, b->copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return same_bytes(a->set, b->set);
    case CU_GRAPH_NODE_TYPE_HOST:
      return same_bytes(a->host, b->host);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return same_list(a->operations, b->operations);
    default:
      return true;
  }
}

// The parameters that an executable was given after it was made.
CUresult give_parameters(CUgraphExec exec, NodeRecord* node) {
  WithContext with(node->context ? node->context : context_for(0, 0));
  auto context = real_of<CUcontext>(Kind::kContext, node->context);
  auto event = real_of<CUevent>(Kind::kEvent, node->object);
  switch (static_cast<int>(node->type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      KernelCall call(node);
      return real().cuGraphExecKernelNodeSetParams_v2(exec, node->now, &call.params);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CUDA_MEMCPY3D params = copy_now(node);
      return real().cuGraphExecMemcpyNodeSetParams(exec, node->now, &params, context);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return real().cuGraphExecMemsetNodeSetParams(exec, node->now, &node->set, context);
    case CU_GRAPH_NODE_TYPE_HOST:
      return real().cuGraphExecHostNodeSetParams(exec, node->now, &node->host);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return real().cuGraphExecEventRecordNodeSetEvent(exec, node->now, event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return real().cuGraphExecEventWaitNodeSetEvent(exec, node->now, event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 params = operations_now(node);
      return real().cuGraphExecBatchMemOpNodeSetParams(exec, node->now, &params);
    }
    default:
      return CUDA_SUCCESS;
  }
}

// What two graphs of the same structure have at the same place: f(record's node, source's node),
// until one is no success. NOT_FOUND: they are not of the same structure.
template <typename F>
CUresult each_pair(const GraphRecord* record, const GraphRecord* source, F f) {
  if (source->nodes.size() != record->nodes.size()) return CUDA_ERROR_NOT_FOUND;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < record->nodes.size() && result == CUDA_SUCCESS; ++i) {
    NodeRecord *a = record->nodes[i], *b = source->nodes[i];
    if (a->type != b->type || a->bodies.size() != b->bodies.size() || !a->child != !b->child)
      return CUDA_ERROR_NOT_FOUND;
    result = f(a, b);
    if (a->child && result == CUDA_SUCCESS) result = each_pair(a->child, b->child, f);
    for (size_t k = 0; k < a->bodies.size() && result == CUDA_SUCCESS; ++k)
      result = each_pair(a->bodies[k], b->bodies[k], f);
  }
  return result;
}

// The graph that an executable whose own may be another by now is made from.
bool make_base(GraphExecObject* e, const Maker& maker) {
  e->base = nullptr;
  if (source_of(e)) return true;
  CUresult result = real().cuGraphCreate(&e->base, 0);
  return result == CUDA_SUCCESS || maker.cannot("a graph", result);
}

bool fill_base(GraphExecObject* e, const Maker& maker) {
  if (!Maker{maker.report, false}.fill(e->base, e->record)) return false;
  CUresult result = hold_users(e->base, e->users);
  return result == CUDA_SUCCESS || maker.cannot("a user object of a graph", result);
}

bool replay_exec(GraphExecObject* e, const Maker& maker) {
  CUgraph base = e->base;
  GraphObject* source = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (base) {
    if (!fill_base(e, maker)) return false;
  } else {
    source = source_of(e);
    base = real_of<CUgraph>(Kind::kGraph, source->name);
    result = each_pair(e->record, source->record, [](NodeRecord* ours, NodeRecord* its) {
      ours->now = its->now;
      return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS)
      return maker.report->fail(
          kExitIncompatible,
          "a graph with memory or conditional nodes has changed since it was instantiated");
  }
  WithContext with(e->context ? e->context : context_for(0, 0));
  uint64_t flags = e->flags & ~static_cast<uint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  CUgraphExec now = nullptr;
  result = real().cuGraphInstantiateWithFlags(&now, base, flags);
  if (result != CUDA_SUCCESS) return maker.cannot("an executable graph", result);
  if (source)
    result = each_pair(e->record, source->record, [&](NodeRecord* ours, NodeRecord* its) {
      return same_parameters(ours, its) ? CUDA_SUCCESS : give_parameters(now, ours);
    });
  if (result != CUDA_SUCCESS) return maker.cannot("a changed node of an executable graph", result);
  e->generation = generation();
  disable_nodes(now, e->record);
  bind(Kind::kGraphExec, e->name, bits(now));
  return true;
}

}  // namespace

bool replay_graphs(DeviceReport* report) {
  Maker maker{report, true};
  Vector<GraphObject*> graphs;
  Vector<GraphExecObject*> executables;
  each_of(ObjectType::kGraph, &graphs);
  each_of(ObjectType::kGraphExec, &executables);
  if (!replay_users(report)) return false;
  for (GraphObject* g : graphs) {
    if (!g->record) continue;
    CUgraph now = nullptr;
    CUresult result = real().cuGraphCreate(&now, 0);
    if (result != CUDA_SUCCESS) return maker.cannot("a graph", result);
    bind(Kind::kGraph, g->name, bits(now));
  }
  for (GraphExecObject* e : executables)
    if (e->record && !make_base(e, maker)) return false;
  if (!replay_handles(graph_of_handle, report)) return false;
  for (GraphObject* g : graphs) {
    if (!g->record) continue;
    auto now = real_of<CUgraph>(Kind::kGraph, g->name);
    if (!maker.fill(now, g->record)) return false;
    CUresult result = hold_users(now, g->users);
    if (result != CUDA_SUCCESS) return maker.cannot("a user object of a graph", result);
  }
  for (GraphExecObject* e : executables)
    if (e->record && !replay_exec(e, maker)) return false;
  drop_spare_references();
  return true;
}

}  // namespace gpuckpt::device
