#include "device/objects/conditionals.h"

#include "device/base/lock_order.h"
#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

// Handles whose graph is gone are made again for the order alone, as far back as this.
constexpr size_t kMostHandles = 4096;

struct Conditionals {
  HashMap<ConditionalNode*> nodes;  // by the name of the node
  Vector<ConditionalHandle> handles;
};
Conditionals* only;
Conditionals& all() { return made_once(&only); }

void note_handle(const ConditionalHandle& handle) {
  MutexLock guard(registry().lock);
  Vector<ConditionalHandle>& handles = all().handles;
  if (handles.size() >= kMostHandles)
    for (size_t i = 0; i < handles.size(); ++i)
      if (!handles[i].graph) {
        handles.remove_at(i);
        break;
      }
  if (!handles.push(handle))
    registry().refuse("out of memory while recording a conditional handle");
}

}  // namespace

void note_conditional(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS* params) {
  CUDA_CONDITIONAL_NODE_PARAMS& p = *params;
  auto* fresh = make<ConditionalNode>();
  bool ok = fresh != nullptr;
  for (unsigned i = 0; ok && i < p.size; ++i) {
    uint64_t name = new_name(Kind::kGraph, p.phGraph_out[i]);
    ok = fresh->bodies.push(name) && fresh->shown.push(handle_from<CUgraph>(name));
  }
  const uint64_t name = new_name(Kind::kGraphNode, node);
  MutexLock guard(registry().lock);
  if (ok) {
    fresh->handle = p.handle;
    fresh->type = p.type;
    fresh->context = p.ctx ? name_from(Kind::kContext, p.ctx) : 0;
    forget_conditional(name);
    ok = all().nodes.put(name, fresh);
  }
  if (!ok) {
    destroy(fresh);
    registry().refuse("out of memory while recording a conditional node");
  } else if (translating()) {
    p.phGraph_out = fresh->shown.data();
  }
}

bool is_body(uint64_t graph) {
  bool found = false;
  all().nodes.each([&](uint64_t, ConditionalNode* node) {
    for (uint64_t body : node->bodies) found |= body == graph;
  });
  return found;
}

const ConditionalNode* find_conditional(uint64_t node) {
  ConditionalNode** known = all().nodes.find(node);
  return known ? *known : nullptr;
}

void forget_conditional(uint64_t node) {
  ConditionalNode** known = all().nodes.find(node);
  if (!known) return;
  destroy(*known);
  all().nodes.erase(node);
}

bool any_conditionals() { return all().nodes.size() != 0; }

void orphan_handles(uint64_t graph) {
  for (ConditionalHandle& h : all().handles)
    if (h.graph == graph) h.graph = 0;
}

namespace {

CUresult make_handle(const ConditionalHandle& h, CUgraph graph, CUgraphConditionalHandle* out) {
  return real().cuGraphConditionalHandleCreate(
      out, graph, real_of<CUcontext>(Kind::kContext, h.context), h.standard, h.flags);
}

// Those that are not there any more are made on a graph of ours.
bool replay_handle(const ConditionalHandle& h, CUgraph graph, CUgraph scratch,
                   DeviceReport* report) {
  CUgraphConditionalHandle now = 0;
  CUresult result = make_handle(h, graph ? graph : scratch, &now);
  if (result != CUDA_SUCCESS)
    return !graph || report->fail(kExitIncompatible,
                                  "a conditional handle of a graph cannot be made again (%d)",
                                  static_cast<int>(result));
  if (!graph || now == h.value) return true;
  return report->fail(
      kExitIncompatible,
      "the conditional handle 0x%lx of a graph would be 0x%lx after the restore; kernels "
      "hold the old value",
      static_cast<unsigned long>(h.value), static_cast<unsigned long>(now));
}

}  // namespace

bool replay_handles(GraphOfHandle graph_of, DeviceReport* report) {
  if (all().handles.empty()) return true;
  CUgraph scratch = nullptr;
  if (real().cuGraphCreate(&scratch, 0) != CUDA_SUCCESS)
    return report->fail(kExitIncompatible, "a graph cannot be made");
  bool ok = true;
  for (const ConditionalHandle& h : all().handles)
    ok = ok && replay_handle(h, graph_of(h), scratch, report);
  real().cuGraphDestroy(scratch);
  return ok;
}

}  // namespace device

using namespace device;

CUresult hook_cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                             CUcontext ctx, unsigned int defaultLaunchValue,
                                             unsigned int flags) {
  static Mutex in_order{kConditionalLock};  // as they are recorded, so they are made again
  MutexLock ordered(in_order);
  CUresult result =
      real().cuGraphConditionalHandleCreate(pHandle_out, hGraph, ctx, defaultLaunchValue, flags);
  if (result == CUDA_SUCCESS)
    note_handle({*pHandle_out, name_from(Kind::kGraph, hGraph),
                 ctx ? name_from(Kind::kContext, ctx) : current_context_name(), defaultLaunchValue,
                 flags});
  return result;
}

}  // namespace gpuckpt
