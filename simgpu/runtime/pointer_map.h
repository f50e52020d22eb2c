// A hash map from pointers to pointers: open addressing, grows by doubling, never holds null keys.
// It replaces std::unordered_map because the runtime may need nothing but libc. Not thread safe.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

namespace simgpu::runtime {

template <typename Value>
class PointerMap {
 public:
  // False only when there is no memory. Replaces an earlier value of the key.
  bool put(const void* key, Value* value) {
    if (2 * (used_ + 1) > capacity_ && !grow()) return false;
    Slot* slot = probe(key);
    if (!slot->key) ++used_;
    *slot = {key, value};
    return true;
  }

  Value* get(const void* key) const { return capacity_ == 0 || !key ? nullptr : probe(key)->value; }

  // visit(key, value) for every key that has one, in no order.
  template <typename Visit>
  void each(Visit visit) const {
    for (size_t i = 0; i < capacity_; ++i) {
      if (slots_[i].value) visit(slots_[i].key, slots_[i].value);
    }
  }

  // The slot stays in use with no value, so that longer probe chains still hold.
  void drop(const void* key, const Value* value) {
    if (get(key) == value) probe(key)->value = nullptr;
  }

 private:
  struct Slot {
    const void* key;
    Value* value;
  };

  Slot* probe(const void* key) const {
    size_t at = (reinterpret_cast<uintptr_t>(key) * 0x9e3779b97f4a7c15ull) >> 20;
    for (;; ++at) {
      Slot* slot = &slots_[at & (capacity_ - 1)];
      if (slot->key == key || !slot->key) return slot;
    }
  }

  bool grow() {
    PointerMap bigger;
    bigger.capacity_ = capacity_ == 0 ? 64 : 2 * capacity_;
    bigger.slots_ = static_cast<Slot*>(calloc(bigger.capacity_, sizeof(Slot)));
    if (!bigger.slots_) return false;
    each([&](const void* key, Value* value) { bigger.put(key, value); });
    free(slots_);
    *this = bigger;
    return true;
  }

  Slot* slots_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
};

}  // namespace simgpu::runtime
