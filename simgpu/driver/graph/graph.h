// Graphs, their nodes, and executable graphs.
//
// One lock guards the structure of all graphs (graph_mutex(), taken after capture_mutex()). What an
// executable runs is a Plan: steps in an order that respects the edges. A plan never changes; an
// update makes a new one, so launches that are under way are not affected.
#pragma once

#include <vector>

#include "driver/graph/graph_memory.h"
#include "driver/stream/action.h"

namespace simgpu {

class AllocAction;
class Graph;
class GraphNode;
class UserObject;

struct Edge {
  GraphNode* node;
  CUgraphEdgeData data;
};

struct HeldUser {
  Ref<UserObject> object;
  unsigned count;
};

class GraphNode : public Object {
 public:
  static constexpr Kind kKind = Kind::kGraphNode;
  GraphNode(Graph* g, Ref<Action> a) : Object(kKind), graph(g), action(std::move(a)) {}
  CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }
  CUgraphNodeType type() const { return action->type; }

  Graph* graph;  // null once the graph has been destroyed
  Ref<Action> action;
  uint64_t uid = 0;     // of this node in this process
  uint64_t origin = 0;  // uid of the node it was cloned from
  std::vector<Edge> in, out;
  std::vector<Ref<Graph>> bodies;     // a child graph, or those of a conditional node
  std::vector<CUgraph> body_handles;  // what a conditional node shows
};

class Graph : public Object {
 public:
  static constexpr Kind kKind = Kind::kGraph;
  explicit Graph(GraphNode* p = nullptr) : Object(kKind), parent(p) {}
  ~Graph() override;
  static Ref<Graph> make(GraphNode* parent);  // with a handle
  CUgraph handle() { return reinterpret_cast<CUgraph>(this); }

  GraphNode* add(Ref<Action>);
  bool connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData&);  // false: is there already
  bool disconnect(GraphNode* from, GraphNode* to);
  void remove(GraphNode*);
  void copy_from(const Graph&);  // adds its nodes, edges and user objects
  void end();                    // all handles in it end
  bool holds(CUgraphNodeType) const;
  // A new allocation gets the memory of one of the same kind in this graph that has been freed when
  // all of `before` have run.
  void reuse_memory(AllocAction*, const std::vector<GraphNode*>& before) const;
  int index_of(const GraphNode*) const;
  GraphNode* find_origin(uint64_t uid) const;

  std::vector<Ref<GraphNode>> nodes;  // in the order they were added
  GraphNode* parent;                  // of an embedded graph
  std::vector<HeldUser> users;
  int executables = 0;  // alive, of graphs that may have only one
  bool capturing = false;
};

class Plan;

struct Step {
  Ref<Action> action;
  uint64_t uid = 0;
  int index = 0;  // in Graph::nodes
  bool enabled = true;
  std::vector<int> after;  // indices
  std::vector<CUgraphEdgeData> after_data;
  std::vector<Ref<Plan>> bodies;
};

class Plan : public RefCounted {
 public:
  std::vector<Step> steps;  // in the order they run
  std::vector<HeldUser> users;
  Ref<Plan> copy() const;
  Step* find(uint64_t uid);
};

class GraphExec : public Object {
 public:
  static constexpr Kind kKind = Kind::kGraphExec;
  GraphExec() : Object(kKind) {}
  ~GraphExec() override;
  CUgraphExec handle() { return reinterpret_cast<CUgraphExec>(this); }

  Ref<Plan> plan;  // guarded by graph_mutex()
  uint64_t flags = 0;
  Point last;       // launches of one executable follow each other
  Ref<Graph> only;  // the graph that may have no other executable meanwhile
};

// A value that a conditional node reads. Kernels see its handle.
class Conditional : public RefCounted {
 public:
  uint64_t handle = 0;
  Ref<Context> context;
  unsigned standard = 0, flags = 0;
  std::atomic<unsigned> value{0};
};

class ConditionalAction : public Action {
 public:
  ConditionalAction(Ref<Context> c, Ref<Conditional> v, CUgraphConditionalNodeType k, unsigned n)
      : Action(CU_GRAPH_NODE_TYPE_CONDITIONAL, std::move(c)),
        value(std::move(v)),
        condition(k),
        size(n) {}
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override { return "conditional"; }
  const Ref<Conditional> value;
  const CUgraphConditionalNodeType condition;
  const unsigned size;
};

// The launch allocates or frees the memory before it starts.
class AllocAction : public Action {
 public:
  explicit AllocAction(Ref<GraphMemory> m)
      : Action(CU_GRAPH_NODE_TYPE_MEM_ALLOC, m->context), memory(std::move(m)) {}
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override { return "allocation"; }
  Ref<GraphMemory> memory;  // of a node that is in no graph yet, another may take its place
};

class FreeAction : public Action {
 public:
  FreeAction(Ref<Context> c, uint64_t a)
      : Action(CU_GRAPH_NODE_TYPE_MEM_FREE, std::move(c)), address(a) {}
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override { return "free"; }
  const uint64_t address;
};

class UserObject : public Object {
 public:
  static constexpr Kind kKind = Kind::kUserObject;
  UserObject(void* p, CUhostFn f) : Object(kKind), pointer(p), destroy(f) {}
  void take(unsigned n) { references.fetch_add(n); }
  bool give(unsigned n);  // false: there are not so many
  void* const pointer;
  const CUhostFn destroy;
  std::atomic<unsigned> references{0};
};

Mutex& graph_mutex();
// The first node of a cycle, or null; otherwise `out` has the plan. graph_mutex() held.
GraphNode* make_plan(const Graph&, Ref<Plan>* out);
// A graph that does what the plan does; for capturing a launch.
void unmake_plan(const Plan&, Graph*);
void retain_users(const std::vector<HeldUser>&);
void release_users(std::vector<HeldUser>*);
Ref<Conditional> conditional_of(uint64_t handle);
bool set_conditional(uint64_t handle, uint32_t value);  // by a kernel; false: there is none

CUresult find_graph(CUgraph, Ref<Graph>*);
CUresult find_node(CUgraphNode, Ref<GraphNode>*);
CUresult find_exec(CUgraphExec, Ref<GraphExec>*);

// The parameters of a node as an action; `*child` is set for child graph nodes.
CUresult action_of(const CUgraphNodeParams&, Ref<Action>*, Ref<Graph>* child);

}  // namespace simgpu
