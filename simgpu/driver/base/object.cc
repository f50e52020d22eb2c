#include "driver/base/object.h"

namespace simgpu {
namespace {
Object* const kTombstone = reinterpret_cast<Object*>(1);
size_t hash(const void* p) {
  return (reinterpret_cast<uintptr_t>(p) >> 4) * 0x9e3779b97f4a7c15ull >> 20;
}
}  // namespace

size_t HandleTable::slot(const void* handle) const {
  size_t mask = slots_.size() - 1, i = hash(handle) & mask;
  while (slots_[i] && slots_[i] != handle) i = (i + 1) & mask;
  return i;
}

void HandleTable::grow() {
  std::vector<Object*> old;
  old.swap(slots_);
  size_t live = 0;
  for (Object* o : old) live += o && o != kTombstone;
  size_t room = 256;
  while (room < live * 4) room *= 2;
  slots_.assign(room, nullptr);
  used_ = live;
  for (Object* o : old)
    if (o && o != kTombstone) slots_[slot(o)] = o;
}

void HandleTable::add(Object* o) {
  Lock lock(mutex_);
  if ((used_ + 1) * 2 > slots_.size()) grow();
  slots_[slot(o)] = o;
  ++used_;
}

bool HandleTable::remove(Object* o) {
  Lock lock(mutex_);
  if (slots_.empty()) return false;
  size_t i = slot(o);
  if (!slots_[i]) return false;
  slots_[i] = kTombstone;
  return true;
}

bool HandleTable::contains(const void* handle, Kind kind) {
  Lock lock(mutex_);
  if (slots_.empty() || !handle || handle == kTombstone) return false;
  Object* o = slots_[slot(handle)];
  return o && o->kind == kind;
}

Object* HandleTable::acquire(const void* handle, Kind kind) {
  Lock lock(mutex_);
  if (slots_.empty() || !handle || handle == kTombstone) return nullptr;
  Object* o = slots_[slot(handle)];
  if (!o || o->kind != kind) return nullptr;
  o->retain();
  return o;
}

}  // namespace simgpu
