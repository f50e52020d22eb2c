// User objects as the program makes, shares and releases them. See users.h.
#include "device/capture/capture.h"
#include "device/objects/graphs.h"
#include "device/objects/users.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

struct Pending {
  uint64_t graph;
  HeldUser held;
};
Vector<Pending>& pending() {
  static Vector<Pending>* all = make<Vector<Pending>>();
  return *all;
}

UserObject* user_object(uint64_t name) {
  return registry().find<UserObject>(ObjectType::kUserObject, name);
}
UserObject* user_by_id(uint64_t id) {
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kUserObject && static_cast<UserObject*>(o)->id == id)
      return static_cast<UserObject*>(o);
  return nullptr;
}

bool is_gone(const UserObject* user) { return __atomic_load_n(&user->gone, __ATOMIC_ACQUIRE); }

// What the driver calls instead of the program's destructor: no lock, it may be anywhere.
void destroyed(void* record) {
  auto* user = static_cast<UserObject*>(record);
  CUhostFn destroy = user->destroy;
  void* pointer = user->pointer;
  __atomic_store_n(&user->gone, true, __ATOMIC_RELEASE);
  destroy(pointer);
}

void sweep() {
  for (Object *o = registry().first(), *next; o; o = next) {
    next = o->next;
    if (o->type != ObjectType::kUserObject || !is_gone(static_cast<UserObject*>(o))) continue;
    if (translating()) drop(Kind::kUserObject, o->name);
    registry().remove(o);
  }
}

void change_users(HeldUsers* users, uint64_t id, int64_t change) {
  for (size_t i = 0; i < users->size(); ++i) {
    HeldUser& held = (*users)[i];
    if (held.id != id) continue;
    int64_t count = held.count + change;
    if (count > 0)
      held.count = static_cast<unsigned>(count);
    else
      users->swap_remove(i);
    return;
  }
  if (change > 0) users->push({id, static_cast<unsigned>(change)});
}

}  // namespace

void take_pending_users(uint64_t graph, HeldUsers* out) {
  for (size_t i = 0; i < pending().size();) {
    if (pending()[i].graph != graph) {
      ++i;
      continue;
    }
    change_users(out, pending()[i].held.id, pending()[i].held.count);
    pending().swap_remove(i);
  }
}
void drop_pending_users() { pending().clear(); }
bool users_pending() { return !pending().empty(); }

void add_users(HeldUsers* to, const HeldUsers& from) {
  for (const HeldUser& held : from) change_users(to, held.id, held.count);
}

bool replay_users(DeviceReport* report) {
  sweep();
  for (Object* o = registry().first(); o; o = o->next) {
    if (o->type != ObjectType::kUserObject) continue;
    auto* user = static_cast<UserObject*>(o);
    CUuserObject now = nullptr;
    CUresult result = real().cuUserObjectCreate(
        &now, user, destroyed, static_cast<unsigned>(user->references + 1), user->flags);
    if (result != CUDA_SUCCESS)
      return report->fail(kExitIncompatible, "a user object of graphs cannot be made again (%d)",
                          static_cast<int>(result));
    bind(Kind::kUserObject, user->name, bits(now));
  }
  return true;
}

CUresult hold_users(CUgraph graph, const HeldUsers& users) {
  CUresult result = CUDA_SUCCESS;
  for (const HeldUser& held : users) {
    UserObject* user = user_by_id(held.id);
    if (user && result == CUDA_SUCCESS)
      result = real().cuGraphRetainUserObject(
          graph, real_of<CUuserObject>(Kind::kUserObject, user->name), held.count, 0);
  }
  return result;
}

void drop_spare_references() {
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kUserObject)
      real().cuUserObjectRelease(real_of<CUuserObject>(Kind::kUserObject, o->name), 1);
}

}  // namespace device

using namespace device;

CUresult hook_cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                 unsigned int initialRefcount, unsigned int flags) {
  static uint64_t last_id;
  {
    MutexLock guard(registry().lock);
    sweep();
  }
  auto* user = make<UserObject>();
  if (!user || !destroy || !object_out) {
    gpuckpt::device::destroy(user);
    return real().cuUserObjectCreate(object_out, ptr, destroy, initialRefcount, flags);
  }
  user->pointer = ptr;
  user->destroy = destroy;
  user->flags = flags;
  user->references = initialRefcount;
  CUresult result = real().cuUserObjectCreate(object_out, user, destroyed, initialRefcount, flags);
  if (result != CUDA_SUCCESS) {
    gpuckpt::device::destroy(user);
    return result;
  }
  uint64_t name = new_name(Kind::kUserObject, *object_out);
  MutexLock guard(registry().lock);
  user->id = ++last_id;
  registry().adopt(user, ObjectType::kUserObject, name);
  return result;
}

CUresult hook_cuUserObjectRetain(CUuserObject object, unsigned int count) {
  CUresult result = real().cuUserObjectRetain(object, count);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  if (UserObject* user = user_object(name_from(Kind::kUserObject, object)))
    user->references += count;
  return result;
}
CUresult hook_cuUserObjectRelease(CUuserObject object, unsigned int count) {
  uint64_t name = name_from(Kind::kUserObject, object);
  {
    MutexLock guard(registry().lock);  // after the call another object may have the name
    if (UserObject* user = user_object(name)) user->references -= count;
  }
  CUresult result = real().cuUserObjectRelease(object, count);
  MutexLock guard(registry().lock);
  UserObject* user = result == CUDA_SUCCESS ? nullptr : user_object(name);
  if (user) user->references += count;
  sweep();
  return result;
}

CUresult hook_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                      unsigned int flags) {
  CUresult result = real().cuGraphRetainUserObject(graph, object, count, flags);
  if (result != CUDA_SUCCESS) return result;
  uint64_t graph_name = name_from(Kind::kGraph, graph);
  MutexLock guard(registry().lock);
  UserObject* user = user_object(name_from(Kind::kUserObject, object));
  if (!user) return result;
  if (flags & CU_GRAPH_USER_OBJECT_MOVE) user->references -= count;
  auto* g = registry().find<GraphObject>(ObjectType::kGraph, graph_name);
  if (g)
    change_users(&g->users, user->id, count);
  else
    pending().push({graph_name, {user->id, count}});
  return result;
}
CUresult hook_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  uint64_t graph_name = name_from(Kind::kGraph, graph);
  uint64_t name = name_from(Kind::kUserObject, object);
  CUresult result = real().cuGraphReleaseUserObject(graph, object, count);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  UserObject* user = user_object(name);
  auto* g = registry().find<GraphObject>(ObjectType::kGraph, graph_name);
  if (g && user) change_users(&g->users, user->id, -static_cast<int64_t>(count));
  sweep();
  return result;
}

}  // namespace gpuckpt
