// One operation of a stream, in a form that can be executed at once, captured into a graph,
// queried, copied and executed many times. Immutable: a graph, its clones and its executables share
// actions, and a change of parameters makes a new one.
#pragma once

#include <vector>

#include "driver/memory/copy.h"
#include "driver/module/module.h"
#include "driver/stream/stream.h"

namespace simgpu {

class Action : public RefCounted {
 public:
  Action(CUgraphNodeType t, Ref<Context> c) : type(t), context(std::move(c)) {}
  // On a stream's thread (or the caller's, for work it waits for anyway).
  virtual CUresult execute(Context&) = 0;
  virtual const char* name() const = 0;
  virtual bool on_any_thread() const { return false; }  // see Work

  const CUgraphNodeType type;
  const Ref<Context> context;  // where it runs; null: anywhere
};

// A kernel launch without its arguments.
struct LaunchShape {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  unsigned shared = 0;
  bool cooperative = false;
};

class KernelAction : public Action {
 public:
  KernelAction(Ref<Context> c, Ref<Module> m, Ref<Function> f)
      : Action(CU_GRAPH_NODE_TYPE_KERNEL, std::move(c)),
        module(std::move(m)),
        function(std::move(f)) {}
  ~KernelAction() override;
  CUresult execute(Context&) override;
  const char* name() const override { return function->info->name; }
  bool on_any_thread() const override { return true; }
  CUlaunchAttribute* attribute(CUlaunchAttributeID);
  CUresult set_attribute(const CUlaunchAttribute&);

  const Ref<Module> module;
  const Ref<Function> function;
  LaunchShape shape;
  uint8_t* params = nullptr;    // packed; ours
  std::vector<void*> pointers;  // one into params for each parameter, for queries of the node
  std::vector<CUlaunchAttribute> attributes;
  // The bindings of the module's texture and surface references at the launch; null: their bindings
  // at the execution.
  Ref<BoundReferences> references;
};

// `params`, `extra`: as cuLaunchKernel takes them. Checks everything that a launch checks.
CUresult make_kernel(Ref<Context>, CUfunction, const LaunchShape&, void** params, void** extra,
                     const CUlaunchAttribute* attributes, unsigned attribute_count,
                     Ref<KernelAction>*);

class CopyAction : public Action {
 public:
  CopyAction(Ref<Context> c, Box b)
      : Action(CU_GRAPH_NODE_TYPE_MEMCPY, std::move(c)), box(std::move(b)) {}
  CUresult execute(Context& c) override { return copy_box(c, box); }
  const char* name() const override { return "copy"; }
  bool on_any_thread() const override { return true; }

  const Box box;
  CUDA_MEMCPY3D params = {};  // what a query shows
};
CUresult make_copy(Ref<Context>, const CUDA_MEMCPY3D&, Ref<CopyAction>*);

class SetAction : public Action {
 public:
  SetAction(Ref<Context> c, const CUDA_MEMSET_NODE_PARAMS_v1& p)
      : Action(CU_GRAPH_NODE_TYPE_MEMSET, std::move(c)), params(p) {}
  CUresult execute(Context&) override;
  const char* name() const override { return "set"; }
  bool on_any_thread() const override { return true; }

  const CUDA_MEMSET_NODE_PARAMS_v1 params;
};
CUresult make_set(Ref<Context>, const CUDA_MEMSET_NODE_PARAMS_v1&, Ref<SetAction>*);

class HostAction : public Action {
 public:
  HostAction(CUhostFn f, void* d) : Action(CU_GRAPH_NODE_TYPE_HOST, {}), function(f), data(d) {}
  CUresult execute(Context&) override;
  const char* name() const override { return "host function"; }

  const CUhostFn function;
  void* const data;
};

class BatchAction : public Action {
 public:
  BatchAction(Ref<Context> c, const CUstreamBatchMemOpParams* p, unsigned count)
      : Action(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, std::move(c)), params(p, p + count) {}
  CUresult execute(Context&) override;
  const char* name() const override { return "memory operations"; }

  const std::vector<CUstreamBatchMemOpParams> params;
};
CUresult make_batch(Ref<Context>, const CUstreamBatchMemOpParams*, unsigned count, unsigned flags,
                    Ref<BatchAction>*);

class EmptyAction : public Action {
 public:
  explicit EmptyAction(CUgraphNodeType t = CU_GRAPH_NODE_TYPE_EMPTY) : Action(t, {}) {}
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override { return "empty"; }
};

// The launch of a graph performs recordings and waits itself, because only it knows which recording
// of an event is meant; executing these actions does nothing.
class EventAction : public Action {
 public:
  EventAction(CUgraphNodeType t, Ref<Event> e) : Action(t, {}), event(std::move(e)) {}
  CUresult execute(Context&) override { return CUDA_SUCCESS; }
  const char* name() const override {
    return type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? "event record" : "event wait";
  }
  const Ref<Event> event;
};

class ActionWork : public Work {
 public:
  explicit ActionWork(Ref<Action> a) : action_(std::move(a)) {}
  CUresult execute(Context& c) override { return action_->execute(c); }
  const char* name() const override { return action_->name(); }
  bool on_any_thread() const override { return action_->on_any_thread(); }

 private:
  const Ref<Action> action_;
};

// Captured by `stream` when it captures (*captured); else nothing happens. The legacy stream may
// not be used while blocking streams capture.
CUresult route(Stream&, const Ref<Action>&, bool* captured);
bool is_capturing(Stream&);
// Captured or submitted.
CUresult enqueue(Stream&, Ref<Action>);

template <class T>
Ref<Action> as_action(const Ref<T>& t) {
  return Ref<Action>(t.get());
}

}  // namespace simgpu
