// Memory of graphs. An allocation node has its address from its creation on; the memory behind it
// is allocated at the first launch and stays until the graph, its executables and the allocation
// have ended, or until it is trimmed.
//
// Addresses: each device has one region for them (one mmap of its own size). Places inside depend
// only on the order in which nodes were made and ended. Nodes of one graph whose lives cannot
// overlap have the same memory (Graph::reuse_memory).
#pragma once

#include "driver/context/context.h"
#include "driver/stream/stream.h"

namespace simgpu {

class GraphMemory : public RefCounted {
 public:
  // Returns null if there is no address space left.
  static Ref<GraphMemory> make(Ref<Context>, const CUDA_MEM_ALLOC_NODE_PARAMS_v1&);
  ~GraphMemory() override;
  // A launch allocates it (`again`: it may be allocated already) or frees it.
  CUresult allocate(bool again);
  CUresult free();
  // Whether a node may have this memory instead of another one.
  bool same_kind(const GraphMemory&) const;
  bool trim();  // gives the memory back when it is not allocated

  const Ref<Context> context;
  uint64_t address = 0, bytes = 0, block = 0;
  CUDA_MEM_ALLOC_NODE_PARAMS_v1 params;
  std::vector<CUmemAccessDesc> access;
  bool live = false, resident = false;

 private:
  explicit GraphMemory(Ref<Context> c) : context(std::move(c)) {}
};

// By exact address; null: no memory of a graph.
Ref<GraphMemory> graph_memory_at(uint64_t address);
bool graph_memory_covers(uint64_t address, uint64_t length);
// cuMemFree and cuMemFreeAsync of a graph's memory.
CUresult free_graph_memory(uint64_t address);

}  // namespace simgpu
