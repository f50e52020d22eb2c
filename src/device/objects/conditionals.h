// Conditional nodes of graphs: if, while and switch, whose value kernels set by a handle that the
// GPU sees. The driver does not report their parameters, so they are recorded as the program makes
// them. A restore makes the handles in the old order, and each must get its old value.
//
// Owner: process-wide, part of every snapshot. Threads: registry().lock, never held while the
// driver is called. Errors: the report's failure; a node that could not be recorded makes snapshots
// refuse.
#pragma once

#include "device/base/registry.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

struct ConditionalNode {
  CUgraphConditionalHandle handle;
  CUgraphConditionalNodeType type;
  uint64_t context;         // name
  Vector<uint64_t> bodies;  // names of the graphs that it runs
  Vector<CUgraph> shown;    // the same, for the program to look at
};

struct ConditionalHandle {
  CUgraphConditionalHandle value;
  uint64_t graph, context;  // names; graph 0: it is gone
  unsigned standard, flags;
};

// A node was made by a call with these parameters, which after a restore show names.
void note_conditional(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS* params);
bool is_body(uint64_t graph);  // by name. The lock is held.
// By the name of the node; null: not known. The lock is held.
const ConditionalNode* find_conditional(uint64_t node);
void forget_conditional(uint64_t node);
bool any_conditionals();
// A graph was destroyed. The lock is held.
void orphan_handles(uint64_t graph);

// `graph_of` says which graph (the driver's handle) a handle belongs to now; null: none.
using GraphOfHandle = CUgraph (*)(const ConditionalHandle& handle);
bool replay_handles(GraphOfHandle graph_of, DeviceReport* report);

}  // namespace gpuckpt::device
