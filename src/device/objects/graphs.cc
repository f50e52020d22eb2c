#include "device/objects/graphs.h"

#include <initializer_list>

#include "device/base/times.h"
#include "device/capture/capture.h"
#include "device/objects/arrays.h"
#include "device/objects/conditionals.h"
#include "device/objects/graph_parts.h"
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

}  // namespace

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

}  // namespace gpuckpt::device
