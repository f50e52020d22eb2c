// Graphs: their nodes and edges, so that a restore can make them again.
//
// A graph is asked for its nodes at a snapshot. An executable cannot be asked: its structure is
// recorded when it is instantiated, and follows every change of parameters. A restore instantiates
// it from a graph of its own (`base`), because the program's may have been destroyed or changed by
// then; the program continues to name the nodes of the graph it instantiated.
//
// Names as in registry.h. Owner: the registry; a record owns its nodes and inner graphs. Threads:
// registry().lock, never held while the driver is called. Errors: a `why`, or the report's failure.
#pragma once

#include "device/base/registry.h"
#include "device/objects/users.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct GraphRecord;

// One node. Which fields mean something depends on the type.
struct NodeRecord {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  uint64_t name = 0;     // of the node in the graph that was recorded
  uint64_t context = 0;  // name
  bool disabled = false;
  uint64_t object = 0;  // name of the function, or of the event
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = {};
  uint8_t* arguments = nullptr;  // of the kernel, each at its offset; ours
  uint64_t argument_bytes = 0;
  Vector<CUlaunchAttribute> attributes;
  CUDA_MEMCPY3D copy = {};
  CUDA_MEMSET_NODE_PARAMS_v1 set = {};
  CUDA_HOST_NODE_PARAMS host = {};
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 memory = {};
  Vector<CUmemAccessDesc> access;
  CUdeviceptr address = 0;  // of a free node
  Vector<CUstreamBatchMemOpParams> operations;
  GraphRecord* child = nullptr;
  CUgraphConditionalHandle condition = 0;
  CUgraphConditionalNodeType condition_type = CU_GRAPH_COND_TYPE_IF;
  Vector<GraphRecord*> bodies;  // of a conditional node
  CUgraphNode now = nullptr;    // in the graph that the latest replay made
};

struct EdgeRecord {
  uint32_t from, to;
  CUgraphEdgeData data;
};

struct GraphRecord {
  uint64_t name = 0;
  Vector<NodeRecord*> nodes;
  Vector<EdgeRecord> edges;
  ~GraphRecord();
};

// The graphs inside of a node: f(GraphRecord*), until one says true.
template <typename F>
bool any_inner(const NodeRecord* node, F f) {
  if (node->child && f(node->child)) return true;
  for (GraphRecord* body : node->bodies)
    if (f(body)) return true;
  return false;
}

struct GraphObject : Object {
  GraphRecord* record = nullptr;  // filled by the snapshot
  HeldUsers users;
};

struct GraphExecObject : Object {
  GraphRecord* record = nullptr;  // null: could not be recorded, `why` says it
  const char* why = nullptr;
  HeldUsers users;  // its graph's when it was instantiated
  uint64_t flags = 0;
  uint32_t generation = 0;  // of the driver's executable
  CUgraph base = nullptr;   // what the replay of this generation instantiated it from
};

// Reads a graph (the driver's handle) by asking the driver; null: `why` says what cannot be made
// again.
GraphRecord* record_graph(CUgraph graph, const char** why);
void free_record(GraphRecord* record);
// Parameters of one node as a call gives them; null, or why they cannot be recorded.
const char* take_kernel(NodeRecord* node, const CUDA_KERNEL_NODE_PARAMS_v2& params);
const char* take_copy(NodeRecord* node, const CUDA_MEMCPY3D& params);
const char* take_operations(NodeRecord* node, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& params);

void note_graph(CUgraph graph);  // a graph of the program (the driver's handle)

// Gate closed, all idle: every graph of the program is read, and memory of graphs must be free.
bool learn_graphs(DeviceReport* report);
// After all other objects.
bool replay_graphs(DeviceReport* report);

}  // namespace gpuckpt::device
