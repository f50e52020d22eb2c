// The device side's own heap and containers. They live in ordinary process memory (so a snapshot
// carries them), never call libc's malloc (it may be locked, or be the application's own), throw
// nothing and need no C++ runtime.
//
// Owner: process-wide; a container owns its elements' memory. Threads: allocate/release are thread
// safe; the containers are not, their owner's lock guards them. Errors: out of memory, allocate
// returns nullptr; containers then report false and stay as they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "base/mutex.h"

namespace gpuckpt::device {

void* allocate(size_t bytes);  // zeroed, aligned to 16
void release(void* block);     // nullptr is fine

template <typename T, typename... Args>
T* make(Args&&... args) {
  void* place = allocate(sizeof(T));
  return place ? new (place) T(std::forward<Args>(args)...) : nullptr;
}
template <typename T>
void destroy(T* object) {
  if (!object) return;
  object->~T();
  release(object);
}

// The one T, made when it is first asked for: no constructor runs at start, no destructor at exit.
template <typename T>
T& made_once(T** place) {
  T* seen = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (seen) return *seen;
  if (T* fresh = make<T>()) {
    if (__atomic_compare_exchange_n(place, &seen, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return *fresh;
    destroy(fresh);
    return *seen;
  }
  // No memory: one thread makes it in a place that is kept for that, others wait for it.
  alignas(T) static unsigned char kept[sizeof(T)];
  static bool taken;
  if (!__atomic_exchange_n(&taken, true, __ATOMIC_ACQ_REL))
    __atomic_store_n(place, new (kept) T(), __ATOMIC_RELEASE);
  while (!(seen = __atomic_load_n(place, __ATOMIC_ACQUIRE))) __builtin_ia32_pause();
  return *seen;
}

// Grows by doubling; elements move bytewise.
template <typename T>
class Vector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Vector() = default;
  ~Vector() { release(data_); }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  bool push(const T& value) {
    if (size_ == capacity_ && !reserve(capacity_ ? capacity_ * 2 : 8)) return false;
    data_[size_++] = value;
    return true;
  }
  bool append(const T* values, size_t count) {
    if (size_ + count > capacity_ &&
        !reserve(size_ + count > capacity_ * 2 ? size_ + count : capacity_ * 2))
      return false;
    if (count) __builtin_memcpy(data_ + size_, values, count * sizeof(T));
    size_ += count;
    return true;
  }
  bool reserve(size_t capacity) {
    if (capacity <= capacity_) return true;
    T* data = static_cast<T*>(allocate(capacity * sizeof(T)));
    if (!data) return false;
    if (size_) __builtin_memcpy(static_cast<void*>(data), data_, size_ * sizeof(T));
    release(data_);
    data_ = data;
    capacity_ = capacity;
    return true;
  }
  void remove_at(size_t index) {  // keeps order
    for (size_t i = index + 1; i < size_; ++i) data_[i - 1] = data_[i];
    --size_;
  }
  void swap_remove(size_t index) { data_[index] = data_[--size_]; }
  void truncate(size_t size) { size_ = size < size_ ? size : size_; }
  void clear() { size_ = 0; }
  void swap(Vector& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// Text of any length (base/text/text.h builds in a fixed buffer), always NUL terminated; what
// memory does not suffice for is dropped.
class GrowingText {
 public:
  GrowingText() = default;
  // Inline, because a description of a million allocations is added in pieces of a few bytes.
  void add_bytes(const char* bytes, size_t count) {
    if (!bytes_.empty()) bytes_.truncate(bytes_.size() - 1);
    bytes_.append(bytes, count);
    bytes_.push('\0');
  }
  const char* c_str() const { return bytes_.empty() ? "" : bytes_.data(); }
  size_t size() const { return bytes_.empty() ? 0 : bytes_.size() - 1; }

 private:
  Vector<char> bytes_;
};

// Open addressing, keys are nonzero 64-bit values (handles, addresses); 0 is never there.
template <typename V>
class HashMap {
  static_assert(std::is_trivially_copyable_v<V>);

 public:
  HashMap() = default;
  ~HashMap() { release(slots_); }
  HashMap(const HashMap&) = delete;
  HashMap& operator=(const HashMap&) = delete;

  V* find(uint64_t key) {
    if (!count_ || !key) return nullptr;
    for (size_t i = hash(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == 0) return nullptr;
    }
  }
  bool put(uint64_t key, const V& value) {  // replaces
    if (V* old = find(key)) {
      *old = value;
      return true;
    }
    if ((count_ + 1) * 4 > (mask_ + 1) * 3 || !slots_) {
      if (!grow()) return false;
    }
    insert(key, value);
    ++count_;
    return true;
  }
  bool erase(uint64_t key) {
    if (!count_ || !key) return false;
    size_t i = hash(key) & mask_;
    while (slots_[i].key != key) {
      if (slots_[i].key == 0) return false;
      i = (i + 1) & mask_;
    }
    // Backward shift keeps probe sequences short without tombstones.
    for (size_t j = i;;) {
      j = (j + 1) & mask_;
      if (slots_[j].key == 0) break;
      size_t home = hash(slots_[j].key) & mask_;
      if (((j - home) & mask_) >= ((j - i) & mask_)) {
        slots_[i] = slots_[j];
        i = j;
      }
    }
    slots_[i].key = 0;
    --count_;
    return true;
  }
  size_t size() const { return count_; }
  template <typename F>
  void each(F f) {
    if (slots_)
      for (size_t i = 0; i <= mask_; ++i)
        if (slots_[i].key) f(slots_[i].key, slots_[i].value);
  }

 private:
  struct Slot {
    uint64_t key;
    V value;
  };
  static size_t hash(uint64_t key) {
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ (key >> 32);
  }
  void insert(uint64_t key, const V& value) {
    size_t i = hash(key) & mask_;
    while (slots_[i].key) i = (i + 1) & mask_;
    slots_[i].key = key;
    slots_[i].value = value;
  }
  bool grow() {
    size_t capacity = slots_ ? (mask_ + 1) * 2 : 16;
    Slot* old = slots_;
    size_t old_capacity = slots_ ? mask_ + 1 : 0;
    Slot* fresh = static_cast<Slot*>(allocate(capacity * sizeof(Slot)));
    if (!fresh) return false;
    slots_ = fresh;
    mask_ = capacity - 1;
    for (size_t i = 0; i < old_capacity; ++i)
      if (old[i].key) insert(old[i].key, old[i].value);
    release(old);
    return true;
  }
  Slot* slots_ = nullptr;
  size_t mask_ = 0, count_ = 0;
};

// Ranges [key, key+size) by address: an intrusive treap, with the largest size below each node (for
// first fit).
struct RangeNode {
  uint64_t begin = 0, size = 0;
  RangeNode *left = nullptr, *right = nullptr;
  uint64_t largest = 0;
  uint32_t priority = 0;
};
class RangeTree {
 public:
  void insert(RangeNode* node);
  void erase(RangeNode* node);
  RangeNode* floor(uint64_t address) const;     // greatest begin <= address
  RangeNode* ceiling(uint64_t address) const;   // least begin >= address
  RangeNode* covering(uint64_t address) const;  // begin <= address < begin+size
  RangeNode* first_fit(uint64_t size) const;    // lowest address with node->size >= size
  RangeNode* first() const { return ceiling(0); }
  RangeNode* next(const RangeNode* node) const { return ceiling(node->begin + 1); }
  bool empty() const { return !root_; }
  void resize(RangeNode* node, uint64_t begin, uint64_t size);  // order must not change

 private:
  RangeNode* root_ = nullptr;
};

}  // namespace gpuckpt::device
