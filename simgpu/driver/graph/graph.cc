// Graphs as a structure: nodes, edges, clones.
#include "driver/graph/graph.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace simgpu {

Mutex& graph_mutex() {
  static Mutex m;
  return m;
}

namespace {

std::atomic<uint64_t> next_uid{1};

}  // namespace

Ref<Graph> Graph::make(GraphNode* parent) {
  auto g = Ref<Graph>::adopt(new Graph(parent));
  state()->handles.add(g.get());
  return g;
}

Graph::~Graph() {
  end();
  release_users(&users);
}

void Graph::end() {
  State* s = state();
  if (!s) return;
  for (Ref<GraphNode>& n : nodes) {
    s->handles.remove(n.get());
    n->graph = nullptr;
    for (Ref<Graph>& b : n->bodies) {
      b->end();
      b->parent = nullptr;
    }
  }
  s->handles.remove(this);
}

GraphNode* Graph::add(Ref<Action> a) {
  auto n = Ref<GraphNode>::adopt(new GraphNode(this, std::move(a)));
  n->uid = n->origin = next_uid.fetch_add(1);
  state()->handles.add(n.get());
  nodes.push_back(n);
  return n.get();
}

bool Graph::connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data) {
  for (const Edge& e : to->in)
    if (e.node == from) return false;
  to->in.push_back({from, data});
  from->out.push_back({to, data});
  return true;
}

bool Graph::disconnect(GraphNode* from, GraphNode* to) {
  auto drop = [](std::vector<Edge>& edges, GraphNode* node) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if (edges[i].node != node) continue;
      edges.erase(edges.begin() + static_cast<long>(i));
      return true;
    }
    return false;
  };
  return drop(to->in, from) && drop(from->out, to);
}

void Graph::remove(GraphNode* n) {
  while (!n->in.empty()) disconnect(n->in.back().node, n);
  while (!n->out.empty()) disconnect(n, n->out.back().node);
  state()->handles.remove(n);
  for (Ref<Graph>& b : n->bodies) b->end();
  int i = index_of(n);
  n->graph = nullptr;
  nodes.erase(nodes.begin() + i);
}

int Graph::index_of(const GraphNode* n) const {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].get() == n) return static_cast<int>(i);
  return -1;
}

GraphNode* Graph::find_origin(uint64_t uid) const {
  for (const Ref<GraphNode>& n : nodes) {
    if (n->origin == uid) return n.get();
    for (const Ref<Graph>& b : n->bodies)
      if (GraphNode* found = b->find_origin(uid)) return found;
  }
  return nullptr;
}

bool Graph::holds(CUgraphNodeType type) const {
  for (const Ref<GraphNode>& n : nodes) {
    if (n->type() == type) return true;
    for (const Ref<Graph>& b : n->bodies)
      if (b->holds(type)) return true;
  }
  return false;
}

namespace {

// `before` and all that they depend on.
std::vector<const GraphNode*> ancestors(const std::vector<GraphNode*>& before) {
  std::vector<const GraphNode*> found;
  auto add = [&](const GraphNode* n) {
    for (const GraphNode* f : found)
      if (f == n) return;
    found.push_back(n);
  };
  for (const GraphNode* n : before) add(n);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::vector<Edge>& in = found[i]->in;
    for (const Edge& e : in) add(e.node);
  }
  return found;
}

// How many nodes allocate the memory at an address, less those that free it.
template <class Nodes>
int users_of(const Nodes& nodes, uint64_t address) {
  int users = 0;
  for (const auto& n : nodes) {
    if (n->type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
      users += static_cast<AllocAction*>(n->action.get())->memory->address == address;
    if (n->type() == CU_GRAPH_NODE_TYPE_MEM_FREE)
      users -= static_cast<FreeAction*>(n->action.get())->address == address;
  }
  return users;
}

}  // namespace

void Graph::reuse_memory(AllocAction* wanted, const std::vector<GraphNode*>& before) const {
  if (!holds(CU_GRAPH_NODE_TYPE_MEM_FREE)) return;
  const std::vector<const GraphNode*> past = ancestors(before);
  for (const GraphNode* n : past) {
    if (n->type() != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const Ref<GraphMemory>& m = static_cast<AllocAction*>(n->action.get())->memory;
    // Freed in the past, and not allocated again by a node that is not in the past.
    const bool free = users_of(past, m->address) == 0 && users_of(nodes, m->address) == 0;
    if (!free || !m->same_kind(*wanted->memory)) continue;
    wanted->memory = m;
    return;
  }
}

void Graph::copy_from(const Graph& other) {
  size_t first = nodes.size();
  for (const Ref<GraphNode>& n : other.nodes) {
    GraphNode* mine = add(n->action);
    mine->origin = n->uid;
    for (const Ref<Graph>& b : n->bodies) {
      mine->bodies.push_back(Graph::make(mine));
      mine->bodies.back()->copy_from(*b);
    }
  }
  for (size_t i = 0; i < other.nodes.size(); ++i)
    for (const Edge& e : other.nodes[i]->in)
      connect(nodes[first + static_cast<size_t>(other.index_of(e.node))].get(),
              nodes[first + i].get(), e.data);
  for (const HeldUser& u : other.users) users.push_back(u);
  retain_users(other.users);
}

CUresult find_graph(CUgraph handle, Ref<Graph>* out) {
  *out = state()->handles.get<Graph>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_node(CUgraphNode handle, Ref<GraphNode>* out) {
  *out = state()->handles.get<GraphNode>(handle);
  return *out && (*out)->graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace {

constexpr CUgraphEdgeData kPlain = {};

bool plain(const CUgraphEdgeData& d) { return memcmp(&d, &kPlain, sizeof d) == 0; }

// Only kernels have ports and programmatic edges.
bool valid(const CUgraphEdgeData& d, const GraphNode& from, const GraphNode& to) {
  if (plain(d)) return true;
  for (unsigned char r : d.reserved)
    if (r != 0) return false;
  if (d.to_port != 0 || d.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return false;
  if (d.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER) return false;
  if (from.type() != CU_GRAPH_NODE_TYPE_KERNEL) return false;
  return d.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT || to.type() == CU_GRAPH_NODE_TYPE_KERNEL;
}

template <class Handle>
CUresult give_list(const std::vector<Handle>& all, Handle* out, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (!out) {
    *count = all.size();
    return CUDA_SUCCESS;
  }
  size_t n = *count;
  for (size_t i = 0; i < n; ++i) out[i] = i < all.size() ? all[i] : Handle{};
  if (*count > all.size()) *count = all.size();
  return CUDA_SUCCESS;
}

CUresult give_edges(const std::vector<Edge>& edges, CUgraphNode* out, CUgraphEdgeData* data,
                    bool data_wanted, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  // The caller asks for edges without their data, but some edges have data.
  for (const Edge& e : edges)
    if (out && !data && !plain(e.data)) return CUDA_ERROR_LOSSY_QUERY;
  if (data_wanted && !out && data) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  for (const Edge& e : edges) all.push_back(e.node->handle());
  if (out && data)
    for (size_t i = 0; i < *count; ++i) data[i] = i < edges.size() ? edges[i].data : kPlain;
  return give_list(all, out, count);
}

CUresult edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
               size_t* count) {
  if (!count || (!from) != (!to)) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  std::vector<CUgraphNode> a, b;
  std::vector<CUgraphEdgeData> d;
  for (const Ref<GraphNode>& n : g->nodes) {
    for (const Edge& e : n->in) {
      if (from && !data && !plain(e.data)) return CUDA_ERROR_LOSSY_QUERY;
      a.push_back(e.node->handle());
      b.push_back(n->handle());
      d.push_back(e.data);
    }
  }
  size_t room = *count;
  if (from && data)
    for (size_t i = 0; i < room; ++i) data[i] = i < d.size() ? d[i] : kPlain;
  if (CUresult r = give_list(a, from, count); r != CUDA_SUCCESS || !from) return r;
  size_t again = room;
  return give_list(b, to, &again);
}

CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, size_t count, bool add) {
  if (count != 0 && (!from || !to)) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  if (!add && (g->holds(CU_GRAPH_NODE_TYPE_MEM_ALLOC) || g->holds(CU_GRAPH_NODE_TYPE_MEM_FREE)))
    return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; ++i) {
    Ref<GraphNode> a, b;
    if (CUresult r = find_node(from[i], &a); r != CUDA_SUCCESS) return r;
    if (CUresult r = find_node(to[i], &b); r != CUDA_SUCCESS) return r;
    if (a->graph != g.get() || b->graph != g.get() || a.get() == b.get())
      return CUDA_ERROR_INVALID_VALUE;
    CUgraphEdgeData d = data ? data[i] : kPlain;
    if (add) {
      if (!valid(d, *a, *b) || !g->connect(a.get(), b.get(), d)) return CUDA_ERROR_INVALID_VALUE;
    } else if (!g->disconnect(a.get(), b.get())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

const char* const kTypeNames[] = {"KERNEL",       "MEMCPY",     "MEMSET",     "HOST",
                                  "GRAPH",        "EMPTY",      "WAIT_EVENT", "EVENT_RECORD",
                                  "SEM_SIGNAL",   "SEM_WAIT",   "MEM_ALLOC",  "MEM_FREE",
                                  "BATCH_MEM_OP", "CONDITIONAL"};

void print(int f, const Graph& g, int* cluster) {
  int id = (*cluster)++;
  dprintf(f, "subgraph cluster_%d {\nlabel=\"graph_%d\" graph[style=\"dashed\"];\n", id, id);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const GraphNode& n = *g.nodes[i];
    dprintf(f,
            "\"graph_%d_node_%zu\"[style=\"solid\" shape=\"rectangle\" label=\"%zu\n%s\n%s\"];\n",
            id, i, i, kTypeNames[n.type()], n.action->name());
    for (const Edge& e : n.in)
      dprintf(f, "\"graph_%d_node_%d\" -> \"graph_%d_node_%zu\";\n", id, g.index_of(e.node), id, i);
  }
  dprintf(f, "}\n");
  for (const Ref<GraphNode>& n : g.nodes)
    for (const Ref<Graph>& b : n->bodies) print(f, *b, cluster);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuGraphCreate(CUgraph* out, unsigned flags) {
  ENTER(cuGraphCreate);
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g = Graph::make(nullptr);
  g->retain();  // the handle's
  *out = g->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphDestroy(CUgraph handle) {
  ENTER(cuGraphDestroy);
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  {
    Lock lock(graph_mutex());
    if (g->parent || g->capturing) return CUDA_ERROR_INVALID_VALUE;
    g->end();
  }
  g->release();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphClone(CUgraph* out, CUgraph handle) {
  ENTER(cuGraphClone);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  if (g->holds(CU_GRAPH_NODE_TYPE_MEM_ALLOC) || g->holds(CU_GRAPH_NODE_TYPE_MEM_FREE) ||
      g->holds(CU_GRAPH_NODE_TYPE_CONDITIONAL))
    return CUDA_ERROR_NOT_SUPPORTED;
  Ref<Graph> copy = Graph::make(nullptr);
  copy->copy_from(*g);
  copy->retain();
  *out = copy->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  ENTER(cuGraphNodeFindInClone);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  Ref<GraphNode> n;
  if (CUresult r = find_graph(clone, &g); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_node(original, &n); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  GraphNode* found = g->find_origin(n->uid);
  if (!found || found == n.get()) return CUDA_ERROR_INVALID_VALUE;
  *out = found->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* out) {
  ENTER(cuGraphNodeGetType);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<GraphNode> n;
  if (CUresult r = find_node(handle, &n); r != CUDA_SUCCESS) return r;
  *out = n->type();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  ENTER(cuGraphGetNodes);
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  std::vector<CUgraphNode> all;
  for (const Ref<GraphNode>& n : g->nodes) all.push_back(n->handle());
  return give_list(all, out, count);
}

SIMGPU_API cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  ENTER(cuGraphGetRootNodes);
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  std::vector<CUgraphNode> all;
  for (const Ref<GraphNode>& n : g->nodes)
    if (n->in.empty()) all.push_back(n->handle());
  return give_list(all, out, count);
}

SIMGPU_API cuGraphGetEdges(CUgraph g, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  ENTER(cuGraphGetEdges);
  return edges(g, from, to, nullptr, count);
}
SIMGPU_API cuGraphGetEdges_v2(CUgraph g, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                              size_t* count) {
  ENTER(cuGraphGetEdges_v2);
  return edges(g, from, to, data, count);
}

namespace {
CUresult neighbours(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, bool data_wanted,
                    size_t* count, bool in) {
  Ref<GraphNode> n;
  if (CUresult r = find_node(handle, &n); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  return give_edges(in ? n->in : n->out, out, data, data_wanted, count);
}
}  // namespace

SIMGPU_API cuGraphNodeGetDependencies(CUgraphNode n, CUgraphNode* out, size_t* count) {
  ENTER(cuGraphNodeGetDependencies);
  return neighbours(n, out, nullptr, false, count, true);
}
SIMGPU_API cuGraphNodeGetDependencies_v2(CUgraphNode n, CUgraphNode* out, CUgraphEdgeData* data,
                                         size_t* count) {
  ENTER(cuGraphNodeGetDependencies_v2);
  return neighbours(n, out, data, true, count, true);
}
SIMGPU_API cuGraphNodeGetDependentNodes(CUgraphNode n, CUgraphNode* out, size_t* count) {
  ENTER(cuGraphNodeGetDependentNodes);
  return neighbours(n, out, nullptr, false, count, false);
}
SIMGPU_API cuGraphNodeGetDependentNodes_v2(CUgraphNode n, CUgraphNode* out, CUgraphEdgeData* data,
                                           size_t* count) {
  ENTER(cuGraphNodeGetDependentNodes_v2);
  return neighbours(n, out, data, true, count, false);
}

SIMGPU_API cuGraphAddDependencies(CUgraph g, const CUgraphNode* from, const CUgraphNode* to,
                                  size_t count) {
  ENTER(cuGraphAddDependencies);
  return change_edges(g, from, to, nullptr, count, true);
}
SIMGPU_API cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode* from, const CUgraphNode* to,
                                     const CUgraphEdgeData* data, size_t count) {
  ENTER(cuGraphAddDependencies_v2);
  return change_edges(g, from, to, data, count, true);
}
SIMGPU_API cuGraphRemoveDependencies(CUgraph g, const CUgraphNode* from, const CUgraphNode* to,
                                     size_t count) {
  ENTER(cuGraphRemoveDependencies);
  return change_edges(g, from, to, nullptr, count, false);
}
SIMGPU_API cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* data, size_t count) {
  ENTER(cuGraphRemoveDependencies_v2);
  return change_edges(g, from, to, data, count, false);
}

SIMGPU_API cuGraphDestroyNode(CUgraphNode handle) {
  ENTER(cuGraphDestroyNode);
  Ref<GraphNode> n;
  if (CUresult r = find_node(handle, &n); r != CUDA_SUCCESS) return r;
  Lock lock(graph_mutex());
  Ref<Graph> g(n->graph);
  if (!g) return CUDA_ERROR_INVALID_VALUE;
  if (g->holds(CU_GRAPH_NODE_TYPE_MEM_ALLOC) || g->holds(CU_GRAPH_NODE_TYPE_MEM_FREE))
    return CUDA_ERROR_NOT_SUPPORTED;
  g->remove(n.get());
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  ENTER(cuGraphDebugDotPrint);
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  Ref<Graph> g;
  if (CUresult r = find_graph(handle, &g); r != CUDA_SUCCESS) return r;
  int f = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (f < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  Lock lock(graph_mutex());
  int cluster = 0;
  dprintf(f, "digraph dot {\n");
  print(f, *g, &cluster);
  dprintf(f, "}\n");
  return close(f) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
