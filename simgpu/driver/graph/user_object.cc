// User objects: resources of the program that live as long as a graph needs them.
#include "driver/graph/graph.h"

namespace simgpu {

// The destructor may not call the driver, on whatever thread it is.
bool UserObject::give(unsigned n) {
  unsigned have = references.load();
  do {
    if (have < n) return false;
  } while (!references.compare_exchange_weak(have, have - n));
  if (have != n) return true;
  bool ours = state()->handles.remove(this);
  ThreadState* t = thread();
  bool before = t->in_callback;
  t->in_callback = true;
  destroy(pointer);
  t->in_callback = before;
  if (ours) release();
  return true;
}

void retain_users(const std::vector<HeldUser>& users) {
  for (const HeldUser& u : users) u.object->take(u.count);
}

void release_users(std::vector<HeldUser>* users) {
  std::vector<HeldUser> gone;
  gone.swap(*users);
  for (HeldUser& u : gone) u.object->give(u.count);
}

namespace {
CUresult find_user(CUuserObject handle, Ref<UserObject>* out) {
  *out = state()->handles.get<UserObject>(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuUserObjectCreate(CUuserObject* out, void* pointer, CUhostFn destroy, unsigned count,
                              unsigned flags) {
  ENTER(cuUserObjectCreate);
  if (!out || !destroy || count == 0 || count > 0x7fffffffu ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  auto* u = new UserObject(pointer, destroy);
  u->references.store(count);
  state()->handles.add(u);  // which owns the first reference
  *out = reinterpret_cast<CUuserObject>(u);
  return CUDA_SUCCESS;
}

SIMGPU_API cuUserObjectRetain(CUuserObject handle, unsigned count) {
  ENTER(cuUserObjectRetain);
  Ref<UserObject> u;
  if (CUresult r = find_user(handle, &u); r != CUDA_SUCCESS) return r;
  if (count == 0 || count > 0x7fffffffu) return CUDA_ERROR_INVALID_VALUE;
  u->take(count);
  return CUDA_SUCCESS;
}

SIMGPU_API cuUserObjectRelease(CUuserObject handle, unsigned count) {
  ENTER(cuUserObjectRelease);
  Ref<UserObject> u;
  if (CUresult r = find_user(handle, &u); r != CUDA_SUCCESS) return r;
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  return u->give(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned count,
                                   unsigned flags) {
  ENTER(cuGraphRetainUserObject);
  Ref<Graph> g;
  Ref<UserObject> u;
  if (CUresult r = find_graph(graph, &g); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_user(handle, &u); r != CUDA_SUCCESS) return r;
  if (count == 0 || (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) u->take(count);
  Lock lock(graph_mutex());
  for (HeldUser& h : g->users) {
    if (h.object.get() != u.get()) continue;
    h.count += count;
    return CUDA_SUCCESS;
  }
  g->users.push_back({u, count});
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned count) {
  ENTER(cuGraphReleaseUserObject);
  Ref<Graph> g;
  Ref<UserObject> u;
  if (CUresult r = find_graph(graph, &g); r != CUDA_SUCCESS) return r;
  if (CUresult r = find_user(handle, &u); r != CUDA_SUCCESS) return r;
  {
    Lock lock(graph_mutex());
    bool found = false;
    for (size_t i = 0; i < g->users.size() && !found; ++i) {
      HeldUser& h = g->users[i];
      if (h.object.get() != u.get()) continue;
      if (count == 0 || h.count < count) return CUDA_ERROR_INVALID_VALUE;
      h.count -= count;
      if (h.count == 0) g->users.erase(g->users.begin() + static_cast<long>(i));
      found = true;
    }
    if (!found) return CUDA_ERROR_INVALID_VALUE;
  }
  return u->give(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
