// Small containers for the compiler: an arena that is freed as a whole, a vector and a text view.
// libstdc++'s own are not used because they reach for exceptions, which have thread-local storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace simgpu::ptx {

// Allocated memory is zeroed and valid until the arena is destroyed. Never returns null: when the
// system has no memory left the process cannot continue usefully, and a null pointer would fault at
// once.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    while (chunk_) {
      Chunk* next = chunk_->next;
      free(chunk_);
      chunk_ = next;
    }
  }

  void* allocate(size_t bytes, size_t align = 16) {
    uintptr_t at = (cursor_ + align - 1) & ~(uintptr_t)(align - 1);
    if (!chunk_ || at + bytes > end_) {
      size_t size = bytes + align + sizeof(Chunk);
      if (size < next_) size = next_;
      if (next_ < kMostChunk) next_ *= 2;
      auto* chunk = static_cast<Chunk*>(calloc(1, size));
      if (!chunk) abort();
      chunk->next = chunk_;
      chunk_ = chunk;
      cursor_ = reinterpret_cast<uintptr_t>(chunk + 1);
      end_ = reinterpret_cast<uintptr_t>(chunk) + size;
      at = (cursor_ + align - 1) & ~(uintptr_t)(align - 1);
    }
    cursor_ = at + bytes;
    return reinterpret_cast<void*>(at);
  }
  template <class T>
  T* make(size_t count = 1) {
    return static_cast<T*>(allocate(sizeof(T) * count, alignof(T) > 16 ? alignof(T) : 16));
  }

 private:
  struct Chunk {
    Chunk* next;
    uint64_t pad;
  };
  static constexpr size_t kFirstChunk = 8 << 10, kMostChunk = 256 << 10;  // each twice the last
  Chunk* chunk_ = nullptr;
  uintptr_t cursor_ = 0, end_ = 0;
  size_t next_ = kFirstChunk;
};

// A growing array of plain values (they are moved by memcpy and never destroyed).
template <class T>
class Vec {
 public:
  Vec() = default;
  Vec(const Vec&) = delete;
  Vec& operator=(const Vec&) = delete;
  ~Vec() { free(data_); }
  T& push(const T& value) {
    if (size_ == room_) grow(size_ + 1);
    return *new (&data_[size_++]) T(value);
  }
  void resize(size_t count) {
    if (count > room_) grow(count);
    if (count > size_) memset(static_cast<void*>(data_ + size_), 0, (count - size_) * sizeof(T));
    size_ = count;
  }
  void pop() { --size_; }
  void clear() { size_ = 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  void grow(size_t least) {
    size_t room = room_ * 2 < 16 ? 16 : room_ * 2;
    if (room < least) room = least;
    auto* data = static_cast<T*>(realloc(static_cast<void*>(data_), room * sizeof(T)));
    if (!data) abort();
    data_ = data;
    room_ = room;
  }
  T* data_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

// A piece of the PTX text (or a literal); not NUL terminated.
struct Text {
  const char* data = nullptr;
  uint32_t size = 0;
  Text() = default;
  Text(const char* d, size_t n) : data(d), size(static_cast<uint32_t>(n)) {}
  Text(const char* literal) : data(literal), size(static_cast<uint32_t>(strlen(literal))) {}
  bool operator==(const Text& o) const {
    return size == o.size && (size == 0 || memcmp(data, o.data, size) == 0);
  }
  bool operator!=(const Text& o) const { return !(*this == o); }
  bool starts(Text o) const { return size >= o.size && memcmp(data, o.data, o.size) == 0; }
  bool empty() const { return size == 0; }
  char operator[](size_t i) const { return data[i]; }
  uint64_t hash() const {
    uint64_t h = 1469598103934665603ull;
    for (uint32_t i = 0; i < size; ++i) h = (h ^ (uint8_t)data[i]) * 1099511628211ull;
    return h ^ (h >> 29);
  }
};

// Text (with a number, for scopes) to a pointer. Open addressing; entries are never removed.
template <class V>
class NameMap {
 public:
  V* find(Text name, uint64_t scope = 0) const {
    if (slots_.empty()) return nullptr;
    size_t mask = slots_.size() - 1;
    for (size_t i = key(name, scope) & mask;; i = (i + 1) & mask) {
      const Slot& s = slots_[i];
      if (!s.value) return nullptr;
      if (s.scope == scope && s.name == name) return s.value;
    }
  }
  // Replaces an older value of the same name.
  void put(Text name, V* value, uint64_t scope = 0) {
    if (slots_.size() < (used_ + 1) * 2) rehash();
    size_t mask = slots_.size() - 1;
    for (size_t i = key(name, scope) & mask;; i = (i + 1) & mask) {
      Slot& s = slots_[i];
      if (!s.value) ++used_;
      if (!s.value || (s.scope == scope && s.name == name)) {
        s = Slot{name, scope, value};
        return;
      }
    }
  }

 private:
  struct Slot {
    Text name;
    uint64_t scope;
    V* value;
  };
  static uint64_t key(Text name, uint64_t scope) {
    return name.hash() + scope * 0x9e3779b97f4a7c15ull;
  }
  void rehash() {
    Vec<Slot> old;
    for (const Slot& s : slots_)
      if (s.value) old.push(s);
    size_t room = slots_.size() * 2 < 64 ? 64 : slots_.size() * 2;
    slots_.clear();
    slots_.resize(room);
    used_ = 0;
    for (const Slot& s : old) put(s.name, s.value, s.scope);
  }
  Vec<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace simgpu::ptx
