#include "device/objects/graphs.h"

#include <initializer_list>

#include "device/base/times.h"
#include "device/capture/capture.h"
#include "device/objects/arrays.h"
#include "device/objects/conditionals.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt::device {

void free_record(GraphRecord* record) { destroy(record); }

GraphRecord::~GraphRecord() {
  for (NodeRecord* node : nodes) {
    release(node->arguments);
    any_inner(node, [](GraphRecord* inner) {
      free_record(inner);
      return false;
    });
    destroy(node);
  }
}

namespace {

// Attributes of a kernel node that a replay sets again when they are not all zero. (Events are for
// launches only.)
constexpr int kAttributes[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                               CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                               CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                               CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                               CU_LAUNCH_ATTRIBUTE_PRIORITY,
                               CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                               CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
                               CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                               CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                               CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING};

uint64_t name_of_function(uint64_t name, CUfunction function) {
  Registry& all = registry();
  {
    MutexLock guard(all.lock);
    if (all.find<FunctionObject>(ObjectType::kFunction, name) ||
        all.find<KernelObject>(ObjectType::kKernel, name))
      return name;
  }
  // A kernel of a library that was launched as such: the driver shows its function.
  Vector<uint64_t> kernels;
  {
    MutexLock guard(all.lock);
    for (Object* o = all.first(); o; o = o->next)
      if (o->type == ObjectType::kKernel && !o->dead) kernels.push(o->name);
  }
  for (uint64_t kernel : kernels) {
    CUfunction its = nullptr;
    if (real().cuKernelGetFunction(&its, real_of<CUkernel>(Kind::kKernel, kernel)) ==
            CUDA_SUCCESS &&
        its == function)
      return kernel;
  }
  return 0;
}

// The context that works on an address: the current one when it is on the same device.
uint64_t context_for(CUdeviceptr to, CUdeviceptr from) {
  uint64_t current = current_context_name();
  for (CUdeviceptr address : {to, from}) {
    int device = -1;
    if (!address || real().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                 address) != CUDA_SUCCESS)
      continue;
    MutexLock guard(registry().lock);
    ContextObject* c = registry().context(current);
    if (c && c->device == device) return current;
    for (Object* o = registry().first(); o; o = o->next) {
      if (o->type != ObjectType::kContext) continue;
      c = static_cast<ContextObject*>(o);
      if (c->alive && c->device == device) return c->name;
    }
  }
  if (current) return current;
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kContext && static_cast<ContextObject*>(o)->alive) return o->name;
  return 0;
}

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

}  // namespace

const char* take_kernel(NodeRecord* node, const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  CUfunction function = params.func;
  CUcontext context = params.ctx;
  node->context = context ? name_from(Kind::kContext, context) : current_context_name();
  WithContext with(node->context);
  if (params.kern) {
    node->object = name_from(Kind::kKernel, params.kern);
    if (real().cuKernelGetFunction(&function, params.kern) != CUDA_SUCCESS)
      return "a kernel of a graph has no function";
  } else {
    node->object = name_of_function(name_from(Kind::kFunction, function), function);
    CUfunction its = nullptr;  // a CUkernel may stand for a CUfunction
    if (real().cuKernelGetFunction(&its, reinterpret_cast<CUkernel>(function)) == CUDA_SUCCESS)
      function = its;
  }
  if (!node->object) return "a kernel of a graph has a function that is not known";
  node->kernel = params;
  node->kernel.kernelParams = nullptr;
  node->kernel.extra = nullptr;
  size_t offset = 0, size = 0, total = 0, count = 0;
  while (real().cuFuncGetParamInfo(function, count, &offset, &size) == CUDA_SUCCESS) {
    if (offset + size > total) total = offset + size;
    ++count;
  }
  if (count == 0 && (params.kernelParams || params.extra) && !present(real().cuFuncGetParamInfo))
    return "the driver does not tell the sizes of kernel parameters";
  release(node->arguments);
  node->arguments = nullptr;
  node->argument_bytes = total;
  if (count == 0) return nullptr;
  node->arguments = static_cast<uint8_t*>(allocate(total));
  if (!node->arguments) return "no memory for a graph's record";
  const uint8_t* packed = nullptr;
  size_t packed_bytes = 0;
  for (void** e = params.extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = static_cast<const uint8_t*>(e[1]);
    if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) packed_bytes = *static_cast<size_t*>(e[1]);
  }
  for (size_t i = 0; i < count; ++i) {
    real().cuFuncGetParamInfo(function, i, &offset, &size);
    if (params.kernelParams)
      __builtin_memcpy(node->arguments + offset, params.kernelParams[i], size);
    else if (packed && offset + size <= packed_bytes)
      __builtin_memcpy(node->arguments + offset, packed + offset, size);
  }
  return nullptr;
}

const char* take_copy(NodeRecord* node, const CUDA_MEMCPY3D& params) {
  node->copy = params;
  bool to_array = params.dstMemoryType == CU_MEMORYTYPE_ARRAY;
  bool from_array = params.srcMemoryType == CU_MEMORYTYPE_ARRAY;
  if (to_array)
    node->copy.dstArray = handle_from<CUarray>(name_from(Kind::kArray, params.dstArray));
  if (from_array)
    node->copy.srcArray = handle_from<CUarray>(name_from(Kind::kArray, params.srcArray));
  if (to_array || from_array) {
    node->context = context_of_array(bits(to_array ? node->copy.dstArray : node->copy.srcArray));
    return node->context ? nullptr : "a graph copies to or from an array that is not known";
  }
  bool to_device = params.dstMemoryType != CU_MEMORYTYPE_HOST;
  bool from_device = params.srcMemoryType != CU_MEMORYTYPE_HOST;
  node->context = context_for(to_device ? params.dstDevice : 0, from_device ? params.srcDevice : 0);
  return nullptr;
}

const char* take_operations(NodeRecord* node, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& params) {
  node->context = params.ctx ? name_from(Kind::kContext, params.ctx) : current_context_name();
  node->operations.clear();
  return node->operations.append(params.paramArray, params.count)
             ? nullptr
             : "no memory for a graph's record";
}

namespace {

// What the program said when it made the node, and what its bodies are now.
const char* read_conditional(NodeRecord* node) {
  Vector<uint64_t> bodies;
  {
    MutexLock guard(registry().lock);
    const ConditionalNode* known = find_conditional(node->name);
    if (!known) return "a graph has a conditional node that was not seen being made";
    node->condition = known->handle;
    node->condition_type = known->type;
    node->context = known->context;
    if (!bodies.append(known->bodies.data(), known->bodies.size()))
      return "no memory for a graph's record";
  }
  for (uint64_t name : bodies) {
    const char* why = nullptr;
    GraphRecord* body = record_graph(real_of<CUgraph>(Kind::kGraph, name), &why);
    if (!body) return why;
    if (!node->bodies.push(body)) {
      free_record(body);
      return "no memory for a graph's record";
    }
  }
  return nullptr;
}

const char* read_attributes(CUgraphNode handle, NodeRecord* node) {
  CUkernelNodeAttrValue updatable = {};
  if (real().cuGraphKernelNodeGetAttribute(handle, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                           &updatable) == CUDA_SUCCESS &&
      updatable.deviceUpdatableKernelNode.deviceUpdatable)
    return "a kernel node that kernels may update by a handle";
  for (int id : kAttributes) {
    CUlaunchAttribute attribute = {};
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    if (real().cuGraphKernelNodeGetAttribute(handle, attribute.id, &attribute.value) !=
        CUDA_SUCCESS)
      continue;
    bool any = false;
    for (char c : attribute.value.pad) any |= c != 0;
    if (any && !node->attributes.push(attribute)) return "no memory for a graph's record";
  }
  return nullptr;
}

const char* read_node(CUgraphNode handle, NodeRecord* node) {
  const char* failed = "a node of a graph cannot be asked for its parameters";
  switch (static_cast<int>(node->type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS_v2 params = {};
      if (real().cuGraphKernelNodeGetParams_v2(handle, &params) != CUDA_SUCCESS) return failed;
      const char* why = take_kernel(node, params);
      return why ? why : read_attributes(handle, node);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CUDA_MEMCPY3D params = {};
      if (real().cuGraphMemcpyNodeGetParams(handle, &params) != CUDA_SUCCESS) return failed;
      return take_copy(node, params);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      if (real().cuGraphMemsetNodeGetParams(handle, &node->set) != CUDA_SUCCESS) return failed;
      node->context = context_for(node->set.dst, 0);
      return nullptr;
    case CU_GRAPH_NODE_TYPE_HOST:
      return real().cuGraphHostNodeGetParams(handle, &node->host) == CUDA_SUCCESS ? nullptr
                                                                                  : failed;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      CUgraph child = nullptr;
      if (real().cuGraphChildGraphNodeGetGraph(handle, &child) != CUDA_SUCCESS) return failed;
      const char* why = nullptr;
      node->child = record_graph(child, &why);
      if (!node->child) return why;
      for (NodeRecord* inner : node->child->nodes)
        if (inner->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
            inner->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
          return "a child graph allocates memory";
      return nullptr;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return nullptr;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      CUevent event = nullptr;
      CUresult result = node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT
                            ? real().cuGraphEventWaitNodeGetEvent(handle, &event)
                            : real().cuGraphEventRecordNodeGetEvent(handle, &event);
      node->object = name_from(Kind::kEvent, event);
      return result == CUDA_SUCCESS ? nullptr : failed;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      if (real().cuGraphMemAllocNodeGetParams(handle, &node->memory) != CUDA_SUCCESS) return failed;
      node->context = context_for(0, 0);
      if (!node->access.append(node->memory.accessDescs, node->memory.accessDescCount))
        return "no memory for a graph's record";
      node->memory.accessDescs = node->access.empty() ? nullptr : node->access.data();
      return nullptr;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return real().cuGraphMemFreeNodeGetParams(handle, &node->address) == CUDA_SUCCESS ? nullptr
                                                                                        : failed;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 params = {};
      if (real().cuGraphBatchMemOpNodeGetParams(handle, &params) != CUDA_SUCCESS) return failed;
      return take_operations(node, params);
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "a graph uses semaphores of another API";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return read_conditional(node);
    default:
      return "a graph has a node of a kind that is not known";
  }
}

const char* read_edges(CUgraph graph, const Vector<CUgraphNode>& nodes, GraphRecord* record) {
  size_t count = 0;
  bool with_data = present(real().cuGraphGetEdges_v2);
  auto ask = [&](CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data) {
    return with_data ? real().cuGraphGetEdges_v2(graph, from, to, data, &count)
                     : real().cuGraphGetEdges(graph, from, to, &count);
  };
  if (ask(nullptr, nullptr, nullptr) != CUDA_SUCCESS)
    return "a graph cannot be asked for its edges";
  if (count == 0) return nullptr;
  auto* from = static_cast<CUgraphNode*>(allocate(count * sizeof(CUgraphNode)));
  auto* to = static_cast<CUgraphNode*>(allocate(count * sizeof(CUgraphNode)));
  auto* data = static_cast<CUgraphEdgeData*>(allocate(count * sizeof(CUgraphEdgeData)));
  HashMap<uint32_t> index;
  bool ok = from && to && data && ask(from, to, data) == CUDA_SUCCESS;
  for (size_t i = 0; i < nodes.size() && ok; ++i)
    ok = index.put(bits(nodes[i]), static_cast<uint32_t>(i));
  for (size_t i = 0; i < count && ok; ++i) {
    uint32_t* a = index.find(bits(from[i]));
    uint32_t* b = index.find(bits(to[i]));
    ok = a && b && record->edges.push({*a, *b, data[i]});
  }
  release(from);
  release(to);
  release(data);
  return ok ? nullptr : "a graph cannot be asked for its edges";
}

const char* read_graph(CUgraph graph, GraphRecord* record) {
  record->name = name_from(Kind::kGraph, graph);
  size_t count = 0;
  const char* failed = "a graph cannot be asked for its nodes";
  if (real().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return failed;
  Vector<CUgraphNode> nodes;
  for (size_t i = 0; i < count; ++i)
    if (!nodes.push(nullptr)) return failed;
  if (count && real().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return failed;
  for (CUgraphNode handle : nodes) {
    auto* node = make<NodeRecord>();
    if (!node || !record->nodes.push(node)) return failed;
    node->name = name_from(Kind::kGraphNode, handle);
    if (real().cuGraphNodeGetType(handle, &node->type) != CUDA_SUCCESS) return failed;
    if (const char* why = read_node(handle, node)) return why;
  }
  return read_edges(graph, nodes, record);
}

}  // namespace

GraphRecord* record_graph(CUgraph graph, const char** why) {
  auto* record = make<GraphRecord>();
  *why = record ? read_graph(graph, record) : "no memory for a graph's record";
  if (!*why) return record;
  free_record(record);
  return nullptr;
}

namespace {

template <typename T>
void each_of(ObjectType type, Vector<T*>* out) {
  MutexLock guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == type) out->push(static_cast<T*>(o));
}

void list_inner(const GraphRecord* record, Vector<GraphObject*>* out) {
  for (const NodeRecord* node : record->nodes)
    any_inner(node, [&](GraphRecord* inner) {
      auto* object = registry().find<GraphObject>(ObjectType::kGraph, inner->name);
      if (object) out->push(object);
      list_inner(inner, out);
      return false;
    });
}

// A graph that became a node's (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE), or is a conditional's body,
// is made again with that node.
void forget_moved(const Vector<GraphObject*>& graphs) {
  MutexLock guard(registry().lock);
  Vector<GraphObject*> moved;
  for (GraphObject* g : graphs) list_inner(g->record, &moved);
  for (GraphObject* g : moved) registry().remove(g);
}

}  // namespace

bool learn_graphs(DeviceReport* report) {
  Vector<GraphObject*> graphs;
  Vector<GraphExecObject*> executables;
  each_of(ObjectType::kGraph, &graphs);
  each_of(ObjectType::kGraphExec, &executables);
  if (users_pending())
    return report->fail(
        kExitRefused, "cuGraphRetainUserObject: a graph inside of another one holds a user object");
  for (GraphExecObject* e : executables)
    if (!e->record)
      return report->fail(kExitRefused, "cuGraphInstantiate: %s",
                          e->why ? e->why : "the graph could not be recorded");
  for (GraphObject* g : graphs) {
    free_record(g->record);
    const char* why = nullptr;
    g->record = record_graph(real_of<CUgraph>(Kind::kGraph, g->name), &why);
    if (!g->record) return report->fail(kExitRefused, "cuGraphCreate: %s", why);
  }
  forget_moved(graphs);
  for (int device = 0; device < machine_facts.devices && !(graphs.empty() && executables.empty());
       ++device) {
    cuuint64_t used = 0;
    if (real().cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) ==
            CUDA_SUCCESS &&
        used != 0)
      return report->fail(
          kExitRefused,
          "cuGraphLaunch: %lu bytes that a graph allocated on device %d are not freed; "
          "their contents are not captured yet",
          static_cast<unsigned long>(used), device);
  }
  return true;
}

// ---- replay ----

namespace {

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
    if (result == CUDA_SUCCESS && params.dptr != node->memory.dptr) {
      report->fail(
          kExitIncompatible,
          "memory that a graph allocates was at 0x%lx and is at 0x%lx after the restore; pointers "
          "to it would be wrong",
          static_cast<unsigned long>(node->memory.dptr), static_cast<unsigned long>(params.dptr));
      return CUDA_ERROR_ALREADY_MAPPED;
    }
    return result;
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

  bool add(CUgraph graph, NodeRecord* node) const {
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
        result = add_allocation(graph, node);
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

  bool fill(CUgraph graph, GraphRecord* record) const {
    for (NodeRecord* node : record->nodes)
      if (!add(graph, node)) return false;
    for (const EdgeRecord& e : record->edges) {
      CUgraphNode from = record->nodes[e.from]->now, to = record->nodes[e.to]->now;
      CUresult result = present(real().cuGraphAddDependencies_v2)
                            ? real().cuGraphAddDependencies_v2(graph, &from, &to, &e.data, 1)
                            : real().cuGraphAddDependencies(graph, &from, &to, 1);
      if (result != CUDA_SUCCESS) return cannot("an edge of a graph", result);
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
