#include "device/graphs.h"

#include "device/arrays.h"
#include "device/capture.h"
#include "device/times.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {

void free_record(GraphRecord* record) { destroy(record); }

GraphRecord::~GraphRecord() {
  for (NodeRecord* node : nodes) {
    release(node->arguments);
    free_record(node->child);
    destroy(node);
  }
}

namespace {

// Attributes of a kernel node that a replay sets again when they are not all zero.
constexpr int kAttributes[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                               CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                               CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                               CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                               CU_LAUNCH_ATTRIBUTE_PRIORITY,
                               CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                               CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
                               CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                               CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};

uint64_t name_of_function(uint64_t name, CUfunction function) {
  Registry& all = registry();
  {
    Guard guard(all.lock);
    if (all.find<FunctionObject>(ObjectType::kFunction, name) ||
        all.find<KernelObject>(ObjectType::kKernel, name))
      return name;
  }
  // A kernel of a library that was launched as such: the driver shows its function.
  Vector<uint64_t> kernels;
  {
    Guard guard(all.lock);
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
    Guard guard(registry().lock);
    ContextObject* c = registry().context(current);
    if (c && c->device == device) return current;
    for (Object* o = registry().first(); o; o = o->next) {
      if (o->type != ObjectType::kContext) continue;
      c = static_cast<ContextObject*>(o);
      if (c->alive && c->device == device) return c->name;
    }
  }
  if (current) return current;
  Guard guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kContext && static_cast<ContextObject*>(o)->alive) return o->name;
  return 0;
}

CUfunction function_now(uint64_t name) {
  bool kernel;
  {
    Guard guard(registry().lock);
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

const char* read_attributes(CUgraphNode handle, NodeRecord* node) {
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
      return "a graph has a conditional node, which is not restored yet";
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
  Guard guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == type) out->push(static_cast<T*>(o));
}

// A graph that became a node's (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) is made again with that node.
void forget_moved(const Vector<GraphObject*>& graphs) {
  Guard guard(registry().lock);
  Vector<GraphObject*> moved;
  for (GraphObject* g : graphs)
    for (NodeRecord* node : g->record->nodes) {
      GraphObject* child = node->child
                               ? registry().find<GraphObject>(ObjectType::kGraph, node->child->name)
                               : nullptr;
      if (child) moved.push(child);
    }
  for (GraphObject* g : moved) registry().remove(g);
}

}  // namespace

bool learn_graphs(DeviceReport* report) {
  Vector<GraphObject*> graphs;
  Vector<GraphExecObject*> executables;
  each_of(ObjectType::kGraph, &graphs);
  each_of(ObjectType::kGraphExec, &executables);
  if (users_pending())
    return fail(report, kExitRefused,
                "cuGraphRetainUserObject: a graph inside of another one holds a user object");
  for (GraphExecObject* e : executables)
    if (!e->record)
      return fail(report, kExitRefused, "cuGraphInstantiate: %s",
                  e->why ? e->why : "the graph could not be recorded");
  for (GraphObject* g : graphs) {
    free_record(g->record);
    const char* why = nullptr;
    g->record = record_graph(real_of<CUgraph>(Kind::kGraph, g->name), &why);
    if (!g->record) return fail(report, kExitRefused, "cuGraphCreate: %s", why);
  }
  forget_moved(graphs);
  for (int device = 0; device < machine_facts.devices && !(graphs.empty() && executables.empty());
       ++device) {
    cuuint64_t used = 0;
    if (real().cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) ==
            CUDA_SUCCESS &&
        used != 0)
      return fail(report, kExitRefused,
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
  Guard guard(registry().lock);
  auto* e = registry().find<EventObject>(ObjectType::kEvent, event);
  if (!e || !e->remembered) return;
  e->remembered = false;
  --remembered_events;
}

struct Maker {
  DeviceReport* report;
  bool names;  // the nodes get their names back
  // A launch would need the memory that these nodes have; the address must be the old one.
  bool cannot(const char* what, CUresult result) const {
    const char* text = nullptr;
    real().cuGetErrorName(result, &text);
    return fail(report, kExitIncompatible, "%s cannot be made again: %s (%d)", what,
                text ? text : "unknown error", static_cast<int>(result));
  }

  CUresult add_kernel(CUgraph graph, NodeRecord* node) const {
    CUDA_KERNEL_NODE_PARAMS_v2 params = node->kernel;
    params.func = function_now(node->object);
    params.kern = nullptr;
    params.ctx = real_of<CUcontext>(Kind::kContext, node->context);
    Vector<void*> pointers;
    size_t offset = 0;
    for (size_t i = 0; real().cuFuncGetParamInfo(params.func, i, &offset, nullptr) == CUDA_SUCCESS;
         ++i)
      pointers.push(node->arguments + offset);
    params.kernelParams = pointers.empty() ? nullptr : pointers.data();
    CUresult result = real().cuGraphAddKernelNode_v2(&node->now, graph, nullptr, 0, &params);
    for (CUlaunchAttribute& a : node->attributes)
      if (result == CUDA_SUCCESS)
        result = real().cuGraphKernelNodeSetAttribute(node->now, a.id, &a.value);
    return result;
  }

  // Places that other graphs have left are filled for a moment, until the old address comes.
  CUresult add_allocation(CUgraph graph, NodeRecord* node) const {
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
      fail(report, kExitIncompatible,
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
        CUDA_MEMCPY3D params = node->copy;
        if (params.dstMemoryType == CU_MEMORYTYPE_ARRAY)
          params.dstArray = real_of<CUarray>(Kind::kArray, bits(params.dstArray));
        if (params.srcMemoryType == CU_MEMORYTYPE_ARRAY)
          params.srcArray = real_of<CUarray>(Kind::kArray, bits(params.srcArray));
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
        CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 params = {
            context, static_cast<unsigned>(node->operations.size()), node->operations.data(), 0};
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
    if (node->child) disable_nodes(executable, node->child);
  }
}

// Memory of graphs belongs to a graph and to the executables of it: both must be one.
bool allocates(const GraphRecord* record) {
  for (const NodeRecord* node : record->nodes)
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || (node->child && allocates(node->child)))
      return true;
  return false;
}

bool replay_exec(GraphExecObject* e, const Maker& maker) {
  CUgraphExec now = nullptr;
  Maker unnamed{maker.report, false};
  e->base = nullptr;
  // The graph itself, when it is still there and owns memory: its addresses exist only once.
  GraphObject* source = nullptr;
  if (allocates(e->record)) {
    Guard guard(registry().lock);
    source = registry().find<GraphObject>(ObjectType::kGraph, e->record->name);
  }
  CUgraph base = nullptr;
  if (source && source->record) {
    base = real_of<CUgraph>(Kind::kGraph, source->name);
    if (source->record->nodes.size() != e->record->nodes.size())
      return fail(maker.report, kExitIncompatible,
                  "a graph with memory has changed since it was instantiated");
    for (size_t i = 0; i < e->record->nodes.size(); ++i)
      e->record->nodes[i]->now = source->record->nodes[i]->now;
  } else {
    CUresult result = real().cuGraphCreate(&base, 0);
    if (result != CUDA_SUCCESS) return maker.cannot("a graph", result);
    e->base = base;
    if (!unnamed.fill(base, e->record)) return false;
    result = hold_users(base, e->users);
    if (result != CUDA_SUCCESS) return maker.cannot("a user object of a graph", result);
  }
  WithContext with(e->context ? e->context : context_for(0, 0));
  uint64_t flags = e->flags & ~static_cast<uint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  CUresult result = real().cuGraphInstantiateWithFlags(&now, base, flags);
  if (result != CUDA_SUCCESS) return maker.cannot("an executable graph", result);
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
    if (!maker.fill(now, g->record)) return false;
    result = hold_users(now, g->users);
    if (result != CUDA_SUCCESS) return maker.cannot("a user object of a graph", result);
  }
  for (GraphExecObject* e : executables)
    if (e->record && !replay_exec(e, maker)) return false;
  drop_spare_references();
  return true;
}

}  // namespace gpuckpt::device
