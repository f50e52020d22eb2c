// Graphs as the program makes, instantiates and changes them. See graphs.h.
#include "device/base/lock_order.h"
#include "device/objects/conditionals.h"

#include <initializer_list>

#include "device/hooks/hooks.h"
#include "device/objects/graphs.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {

void note_graph(CUgraph graph) {
  uint64_t name = new_name(Kind::kGraph, graph);
  MutexLock guard(registry().lock);
  if (registry().find<GraphObject>(ObjectType::kGraph, name) || is_body(name)) return;
  auto* g = registry().add<GraphObject>(ObjectType::kGraph, name, 0);
  if (g) take_pending_users(name, &g->users);
}

namespace {

// Names of nodes, and what is known of conditional ones, end with their graph.
void drop_nodes(CUgraph graph) {
  size_t count = 0;
  if (!translating() && !any_conditionals()) return;
  if (real().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  Vector<CUgraphNode> nodes;
  for (size_t i = 0; i < count; ++i)
    if (!nodes.push(nullptr)) return;
  if (!count || real().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  auto drop_inner = [](CUgraph inner) {
    drop_nodes(inner);
    if (translating()) drop(Kind::kGraph, name_from(Kind::kGraph, inner));
  };
  for (CUgraphNode node : nodes) {
    const uint64_t name = name_from(Kind::kGraphNode, node);
    CUgraphNodeType type;
    CUgraph child = nullptr;
    if (real().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        real().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
      drop_inner(child);
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      Vector<uint64_t> bodies;
      {
        MutexLock guard(registry().lock);
        const ConditionalNode* known = find_conditional(name);
        if (known) bodies.append(known->bodies.data(), known->bodies.size());
        forget_conditional(name);
      }
      for (uint64_t body : bodies) drop_inner(real_of<CUgraph>(Kind::kGraph, body));
    }
    if (translating()) drop(Kind::kGraphNode, name);
  }
}

GraphObject* graph_object(CUgraph graph) {
  return registry().find<GraphObject>(ObjectType::kGraph, name_from(Kind::kGraph, graph));
}

// What an executable graph launches has been loaded by now.
void note_uses(const GraphRecord* record) {
  for (const NodeRecord* node : record->nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
      WithContext with(node->context);
      first_use(handle_from<CUfunction>(node->object));
    }
    any_inner(node, [](GraphRecord* inner) {
      note_uses(inner);
      return false;
    });
  }
}

CUresult note_exec(CUresult result, CUgraphExec* out, CUgraph graph, uint64_t flags) {
  if (result != CUDA_SUCCESS) return result;
  const char* why = nullptr;
  GraphRecord* record = record_graph(graph, &why);
  if (record) note_uses(record);
  uint64_t name = new_name(Kind::kGraphExec, *out), context = current_context_name();
  MutexLock guard(registry().lock);
  auto* e = registry().add<GraphExecObject>(ObjectType::kGraphExec, name, context);
  if (!e) {
    free_record(record);
    return result;
  }
  e->record = record;
  e->why = why;
  e->flags = flags;
  e->generation = generation();
  if (GraphObject* g = graph_object(graph)) add_users(&e->users, g->users);
  return result;
}

// What a graph holds is held by its clone, too.
void share_users(CUgraph from, CUgraph to) {
  MutexLock guard(registry().lock);
  GraphObject *a = graph_object(from), *b = graph_object(to);
  if (a && b) add_users(&b->users, a->users);
}

NodeRecord* find_node(GraphRecord* record, uint64_t name) {
  if (!record) return nullptr;
  for (NodeRecord* node : record->nodes) {
    if (node->name == name) return node;
    NodeRecord* found = nullptr;
    if (any_inner(node, [&](GraphRecord* inner) { return found = find_node(inner, name); }))
      return found;
  }
  return nullptr;
}

// An executable's node: the driver's handle for calls about the executable, and its record.
struct Target {
  GraphExecObject* exec = nullptr;
  NodeRecord* node = nullptr;
  CUgraphNode handle;
};
Target target_of(CUgraphExec exec, CUgraphNode handle) {
  Target t;
  t.handle = handle;
  uint64_t name = name_from(Kind::kGraphNode, handle);
  MutexLock guard(registry().lock);
  t.exec =
      registry().find<GraphExecObject>(ObjectType::kGraphExec, name_from(Kind::kGraphExec, exec));
  if (!t.exec) return t;
  t.node = find_node(t.exec->record, name);
  // Instantiated by a replay from a graph of its own.
  if (t.node && t.exec->base && t.exec->generation == generation()) t.handle = t.node->now;
  return t;
}

// `change` follows in the record what the driver did.
template <typename F>
CUresult changed(CUresult result, const Target& t, F change) {
  if (result != CUDA_SUCCESS || !t.exec) return result;
  const char* why = t.node ? change(t.node) : "a node that is not known was changed";
  if (why) {
    free_record(t.exec->record);
    t.exec->record = nullptr;
    t.exec->why = why;
  }
  return result;
}

CUDA_KERNEL_NODE_PARAMS_v2 upgrade(const CUDA_KERNEL_NODE_PARAMS_v1& v1) {
  CUDA_KERNEL_NODE_PARAMS_v2 v2 = {};
  __builtin_memcpy(&v2, &v1, sizeof v1);
  return v2;
}

// The nodes of `to` keep their names and take over everything else.
const char* take_over(GraphRecord* to, GraphRecord* from) {
  if (to->nodes.size() != from->nodes.size()) return "an executable graph was updated to another";
  for (size_t i = 0; i < to->nodes.size(); ++i) {
    NodeRecord *a = to->nodes[i], *b = from->nodes[i];
    if (!a->bodies.empty() || !b->bodies.empty())
      return "an executable graph with a conditional node was updated";
    b->name = a->name;
    b->now = a->now;
    b->disabled = a->disabled;
    if (a->child && b->child)
      if (const char* why = take_over(a->child, b->child)) return why;
  }
  to->nodes.swap(from->nodes);
  to->edges.swap(from->edges);
  return nullptr;
}

const char* take_graph(GraphRecord* to, CUgraph graph) {
  const char* why = nullptr;
  GraphRecord* fresh = record_graph(graph, &why);
  if (!fresh) return why;
  why = take_over(to, fresh);
  free_record(fresh);
  return why;
}

CUresult note_update(CUresult result, CUgraphExec exec, CUgraph graph) {
  if (result != CUDA_SUCCESS) return result;
  GraphExecObject* e;
  {
    MutexLock guard(registry().lock);
    e = registry().find<GraphExecObject>(ObjectType::kGraphExec, name_from(Kind::kGraphExec, exec));
  }
  if (e) {
    MutexLock guard(registry().lock);
    if (GraphObject* g = graph_object(graph)) add_users(&e->users, g->users);
  }
  if (!e || !e->record) return result;
  if (const char* why = take_graph(e->record, graph)) {
    free_record(e->record);
    e->record = nullptr;
    e->why = why;
  }
  return result;
}

const char* take_params(NodeRecord* node, const CUgraphNodeParams& p) {
  switch (static_cast<int>(p.type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS_v2 params;
      static_assert(sizeof params == sizeof p.kernel);
      __builtin_memcpy(&params, &p.kernel, sizeof params);
      return take_kernel(node, params);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return take_copy(node, p.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      __builtin_memcpy(&node->set, &p.memset, sizeof node->set);
      return nullptr;
    case CU_GRAPH_NODE_TYPE_HOST:
      node->host = {p.host.fn, p.host.userData};
      return nullptr;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return node->child ? take_graph(node->child, p.graph.graph) : "no child graph";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      node->object = name_from(Kind::kEvent, p.eventWait.event);
      return nullptr;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      node->object = name_from(Kind::kEvent, p.eventRecord.event);
      return nullptr;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 params = {p.memOp.ctx, p.memOp.count, p.memOp.paramArray,
                                                 p.memOp.flags};
      return take_operations(node, params);
    }
    default:
      return "a node of an executable graph was changed in a way that is not known";
  }
}

// The points of a capture are told by a pointer into the driver: after a restore the program gets
// names instead, valid as long as the next few askings of the process.
void name_points(const CUgraphNode** nodes, const size_t* count) {
  if (!translating() || !nodes || !*nodes || !count || !*count) return;
  static Mutex lock{kCapturePointLock};
  static Vector<CUgraphNode> rooms[16];
  static unsigned next;
  MutexLock guard(lock);
  Vector<CUgraphNode>& room = rooms[next++ % 16];
  room.clear();
  for (size_t i = 0; i < *count; ++i)
    room.push(handle_from<CUgraphNode>(new_name(Kind::kGraphNode, (*nodes)[i])));
  *nodes = room.data();
}

}  // namespace
}  // namespace device

using namespace device;

CUresult hook_cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  CUresult result = real().cuGraphCreate(phGraph, flags);
  if (result == CUDA_SUCCESS) note_graph(*phGraph);
  return result;
}
CUresult hook_cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  CUresult result = real().cuGraphClone(phGraphClone, originalGraph);
  if (result != CUDA_SUCCESS) return result;
  note_graph(*phGraphClone);
  share_users(originalGraph, *phGraphClone);
  return result;
}
CUresult hook_cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       CUgraph childGraph) {
  CUresult result = real().cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies,
                                                    numDependencies, childGraph);
  if (result == CUDA_SUCCESS) share_users(childGraph, hGraph);
  return result;
}
static CUresult note_added(CUresult result, CUgraph graph, const CUgraphNode* node,
                           CUgraphNodeParams* params) {
  if (result != CUDA_SUCCESS) return result;
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) note_conditional(*node, &params->conditional);
  if (params->type != CU_GRAPH_NODE_TYPE_GRAPH) return result;
  share_users(params->graph.graph, graph);
  if (params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) return result;
  MutexLock guard(registry().lock);  // it is the node's now, and made again with it
  if (GraphObject* child = graph_object(params->graph.graph)) registry().remove(child);
  return result;
}
CUresult hook_cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies,
                             CUgraphNodeParams* nodeParams) {
  return note_added(
      real().cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams), hGraph,
      phGraphNode, nodeParams);
}
CUresult hook_cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies,
                                const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                CUgraphNodeParams* nodeParams) {
  return note_added(real().cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData,
                                             numDependencies, nodeParams),
                    hGraph, phGraphNode, nodeParams);
}
CUresult hook_cuGraphDestroy(CUgraph hGraph) {
  uint64_t name = name_from(Kind::kGraph, hGraph);
  bool ours;  // an embedded graph cannot be destroyed
  {
    MutexLock guard(registry().lock);
    ours = registry().find<GraphObject>(ObjectType::kGraph, name) != nullptr;
  }
  if (!ours) return real().cuGraphDestroy(hGraph);
  drop_nodes(hGraph);
  {
    MutexLock guard(registry().lock);
    orphan_handles(name);
    // Another graph may get the name; it is not the one that these came from.
    for (Object* o = registry().first(); o; o = o->next) {
      if (o->type != ObjectType::kGraphExec) continue;
      GraphRecord* record = static_cast<GraphExecObject*>(o)->record;
      if (record && record->name == name) record->name = 0;
    }
  }
  return registry().end(ObjectType::kGraph, name, [&] { return real().cuGraphDestroy(hGraph); });
}

CUresult hook_cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                 char* logBuffer, size_t bufferSize) {
  return note_exec(
      real().cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
      phGraphExec, hGraph, 0);
}
CUresult hook_cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                    CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize) {
  return note_exec(
      real().cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
      phGraphExec, hGraph, 0);
}
CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                          unsigned long long flags) {
  return note_exec(real().cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags), phGraphExec,
                   hGraph, flags);
}
CUresult hook_cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  CUresult result = real().cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
  return note_exec(result, phGraphExec, hGraph, instantiateParams ? instantiateParams->flags : 0);
}
CUresult hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  CUresult result =
      real().cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams);
  return note_exec(result, phGraphExec, hGraph, instantiateParams ? instantiateParams->flags : 0);
}
CUresult hook_cuGraphExecDestroy(CUgraphExec hGraphExec) {
  uint64_t name = name_from(Kind::kGraphExec, hGraphExec);
  CUgraph base = nullptr;
  {
    MutexLock guard(registry().lock);
    auto* e = registry().find<GraphExecObject>(ObjectType::kGraphExec, name);
    if (e && e->generation == generation()) base = e->base;
  }
  CUresult result = registry().end(ObjectType::kGraphExec, name,
                                   [&] { return real().cuGraphExecDestroy(hGraphExec); });
  if (result == CUDA_SUCCESS && base) real().cuGraphDestroy(base);
  return result;
}

CUresult hook_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                                CUgraphExecUpdateResult* updateResult_out) {
  CUresult result = real().cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
  if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && hErrorNode_out && *hErrorNode_out)
    *hErrorNode_out = handle_from<CUgraphNode>(name_from(Kind::kGraphNode, *hErrorNode_out));
  return note_update(result, hGraphExec, hGraph);
}
CUresult hook_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphExecUpdateResultInfo* resultInfo) {
  CUresult result = real().cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo);
  if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && resultInfo) {
    for (CUgraphNode* node : {&resultInfo->errorNode, &resultInfo->errorFromNode})
      if (*node) *node = handle_from<CUgraphNode>(name_from(Kind::kGraphNode, *node));
  }
  return note_update(result, hGraphExec, hGraph);
}

CUresult hook_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       CUgraphNodeParams* nodeParams) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecNodeSetParams(hGraphExec, t.handle, nodeParams), t,
                 [&](NodeRecord* n) { return take_params(n, *nodeParams); });
}
CUresult hook_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecKernelNodeSetParams(hGraphExec, t.handle, nodeParams), t,
                 [&](NodeRecord* n) { return take_kernel(n, upgrade(*nodeParams)); });
}
CUresult hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecKernelNodeSetParams_v2(hGraphExec, t.handle, nodeParams), t,
                 [&](NodeRecord* n) { return take_kernel(n, *nodeParams); });
}
CUresult hook_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecMemcpyNodeSetParams(hGraphExec, t.handle, copyParams, ctx), t,
                 [&](NodeRecord* n) { return take_copy(n, *copyParams); });
}
CUresult hook_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                             CUcontext ctx) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecMemsetNodeSetParams(hGraphExec, t.handle, memsetParams, ctx), t,
                 [&](NodeRecord* n) -> const char* {
                   n->set = *memsetParams;
                   return nullptr;
                 });
}
CUresult hook_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_HOST_NODE_PARAMS* nodeParams) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecHostNodeSetParams(hGraphExec, t.handle, nodeParams), t,
                 [&](NodeRecord* n) -> const char* {
                   n->host = *nodeParams;
                   return nullptr;
                 });
}
CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 CUgraph childGraph) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecChildGraphNodeSetParams(hGraphExec, t.handle, childGraph), t,
                 [&](NodeRecord* n) {
                   return n->child ? take_graph(n->child, childGraph) : "no child graph";
                 });
}
CUresult hook_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 CUevent event) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecEventRecordNodeSetEvent(hGraphExec, t.handle, event), t,
                 [&](NodeRecord* n) -> const char* {
                   n->object = name_from(Kind::kEvent, event);
                   return nullptr;
                 });
}
CUresult hook_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                               CUevent event) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecEventWaitNodeSetEvent(hGraphExec, t.handle, event), t,
                 [&](NodeRecord* n) -> const char* {
                   n->object = name_from(Kind::kEvent, event);
                   return nullptr;
                 });
}
CUresult hook_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphExecBatchMemOpNodeSetParams(hGraphExec, t.handle, nodeParams), t,
                 [&](NodeRecord* n) { return take_operations(n, *nodeParams); });
}
CUresult hook_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                    unsigned int isEnabled) {
  Target t = target_of(hGraphExec, hNode);
  return changed(real().cuGraphNodeSetEnabled(hGraphExec, t.handle, isEnabled), t,
                 [&](NodeRecord* n) -> const char* {
                   n->disabled = isEnabled == 0;
                   return nullptr;
                 });
}
CUresult hook_cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                    unsigned int* isEnabled) {
  return real().cuGraphNodeGetEnabled(hGraphExec, target_of(hGraphExec, hNode).handle, isEnabled);
}

CUresult hook_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                        size_t* count) {
  size_t number = 0;
  CUresult result =
      real().cuStreamGetCaptureInfo_v2(hStream, status, id, graph, nodes, count ? count : &number);
  if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    name_points(nodes, count ? count : &number);
  return result;
}
CUresult hook_cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream, CUstreamCaptureStatus* status,
                                             cuuint64_t* id, CUgraph* graph,
                                             const CUgraphNode** nodes, size_t* count) {
  size_t number = 0;
  CUresult result = real().cuStreamGetCaptureInfo_v2_ptsz(hStream, status, id, graph, nodes,
                                                          count ? count : &number);
  if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    name_points(nodes, count ? count : &number);
  return result;
}
CUresult hook_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                        const CUgraphEdgeData** edges, size_t* count) {
  size_t number = 0;
  CUresult result = real().cuStreamGetCaptureInfo_v3(hStream, status, id, graph, nodes, edges,
                                                     count ? count : &number);
  if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    name_points(nodes, count ? count : &number);
  return result;
}
CUresult hook_cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream, CUstreamCaptureStatus* status,
                                             cuuint64_t* id, CUgraph* graph,
                                             const CUgraphNode** nodes,
                                             const CUgraphEdgeData** edges, size_t* count) {
  size_t number = 0;
  CUresult result = real().cuStreamGetCaptureInfo_v3_ptsz(hStream, status, id, graph, nodes, edges,
                                                          count ? count : &number);
  if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    name_points(nodes, count ? count : &number);
  return result;
}

}  // namespace gpuckpt
