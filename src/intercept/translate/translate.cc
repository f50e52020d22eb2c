#include "intercept/translate/translate.h"

#include <initializer_list>

#include "base/heap.h"
#include "base/mutex.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kDropped = ~0ull;  // value of an entry that was dropped
constexpr uint64_t kInvented =
    0x67706b0000000000;  // names we had to make up: no address, no small number

// Open addressing, linear probing, at most half full. Keys are never taken back while a table is in
// use, so that a reader without a lock sees for one key only values that belonged to it.
struct Entry {
  std::atomic<uint64_t> key;  // 0: empty
  std::atomic<uint64_t> value;
};
struct Table {
  uint64_t mask;
  uint64_t used;  // keys, dropped ones included
  Entry entry[];
};

struct Names {
  std::atomic<Table*> to_now;
  std::atomic<Table*> to_name;
};
constinit Names g_names[static_cast<size_t>(Kind::kCount)] = {};
constinit Mutex g_mutex;
constinit uint64_t g_invented = 0;

inline uint64_t slot_of(uint64_t key, uint64_t mask) {
  return ((key * 0x9e3779b97f4a7c15ull) >> 20) & mask;
}

Entry* find(Table* t, uint64_t key) {
  if (!t) return nullptr;
  for (uint64_t i = slot_of(key, t->mask);; i = (i + 1) & t->mask) {
    uint64_t k = t->entry[i].key.load(std::memory_order_acquire);
    if (k == key) return &t->entry[i];
    if (k == 0) return nullptr;
  }
}

// 0: no entry (the handle is its own name).
inline uint64_t lookup(const std::atomic<Table*>& table, uint64_t key) {
  Entry* e = find(table.load(std::memory_order_acquire), key);
  if (!e) return 0;
  uint64_t v = e->value.load(std::memory_order_acquire);
  return v == kDropped ? 0 : v;
}

Table* new_table(uint64_t slots) {
  Region r = region_map(sizeof(Table) + slots * sizeof(Entry));
  if (!r) return nullptr;
  auto* t = reinterpret_cast<Table*>(r.data());
  t->mask = slots - 1;
  return t;
}

void put(Table* t, uint64_t key, uint64_t value) {
  for (uint64_t i = slot_of(key, t->mask);; i = (i + 1) & t->mask) {
    Entry& e = t->entry[i];
    uint64_t k = e.key.load(std::memory_order_relaxed);
    if (k != key && k != 0) continue;
    e.value.store(value, std::memory_order_release);
    if (k == 0) {
      e.key.store(key, std::memory_order_release);
      t->used++;
    }
    return;
  }
}

// The old table stays mapped: a reader may be in it. Growth doubles, so that all old ones together
// are no bigger.
void set(std::atomic<Table*>& table, uint64_t key, uint64_t value) {
  Table* t = table.load(std::memory_order_relaxed);
  if (!t || (t->used + 1) * 2 > t->mask) {
    Table* bigger = new_table(t ? (t->mask + 1) * 2 : 256);
    if (!bigger) return;
    for (uint64_t i = 0; t && i <= t->mask; i++) {
      uint64_t k = t->entry[i].key.load(std::memory_order_relaxed);
      uint64_t v = t->entry[i].value.load(std::memory_order_relaxed);
      if (k && v != kDropped) put(bigger, k, v);
    }
    table.store(bigger, std::memory_order_release);
    t = bigger;
  }
  put(t, key, value);
}

Names& names(Kind kind) { return g_names[static_cast<size_t>(kind)]; }
constexpr bool magic(uint64_t handle) { return handle <= 2; }

void bind_locked(Kind kind, uint64_t name, uint64_t now) {
  set(names(kind).to_now, name, now);
  set(names(kind).to_name, now, name);
}

}  // namespace

uint64_t now_of(Kind kind, uint64_t name) {
  if (magic(name)) return name;
  uint64_t now = lookup(names(kind).to_now, name);
  return now ? now : name;
}

uint64_t name_of(Kind kind, uint64_t now) {
  if (magic(now)) return now;
  uint64_t name = lookup(names(kind).to_name, now);
  if (name) return name;
  const ThreadRecord* thread = this_thread_record();
  const bool ending =
      thread && thread->ending_kind == static_cast<uint8_t>(kind) && thread->ending_now == now;
  return ending ? thread->ending_name : now;
}

bool name_bound(Kind kind, uint64_t name) {
  return !magic(name) && lookup(names(kind).to_now, name) != 0;
}

void bind(Kind kind, uint64_t name, uint64_t now) {
  if (magic(name) || magic(now)) return;
  MutexLock lock(g_mutex);
  bind_locked(kind, name, now);
}

EndingName::EndingName(bool names, ThreadRecord* thread, Kind kind, uint64_t name)
    : thread_(thread), kind_(kind), name_(name), now_(name) {
  if (__builtin_expect(!names, 1) || !name_bound(kind, name)) return;
  now_ = now_of(kind, name);
  drop(kind, name);
  unbound_ = true;
  thread->ending_kind = static_cast<uint8_t>(kind);
  thread->ending_name = name;
  thread->ending_now = now_;
}

// A restore meanwhile has bound it again.
EndingName::~EndingName() {
  if (__builtin_expect(!unbound_, 1)) return;
  thread_->ending_kind = 0;
  if (ended_)
    drop(kind_, name_);
  else if (!name_bound(kind_, name_))
    bind(kind_, name_, now_);
}

void drop(Kind kind, uint64_t name) {
  if (magic(name)) return;
  MutexLock lock(g_mutex);
  Entry* forward = find(names(kind).to_now.load(std::memory_order_relaxed), name);
  if (!forward) return;
  uint64_t now = forward->value.exchange(kDropped, std::memory_order_acq_rel);
  if (now == kDropped) return;
  Entry* backward = find(names(kind).to_name.load(std::memory_order_relaxed), now);
  if (backward && backward->value.load(std::memory_order_relaxed) == name) {
    backward->value.store(kDropped, std::memory_order_release);
  }
}

uint64_t name_new(Kind kind, uint64_t now) {
  if (magic(now)) return now;
  MutexLock lock(g_mutex);
  if (uint64_t name = lookup(names(kind).to_name, now)) return name;
  if (!lookup(names(kind).to_now, now)) return now;
  // The driver gave out a value that is the name of another live object.
  uint64_t name = kInvented + (++g_invented << 4);
  bind_locked(kind, name, now);
  return name;
}

void translate_forget_all() {
  for (Names& n : g_names) {
    for (std::atomic<Table*>* table : {&n.to_now, &n.to_name}) {
      Table* t = table->load(std::memory_order_relaxed);
      if (!t) continue;
      for (uint64_t i = 0; i <= t->mask; i++) {
        t->entry[i].key.store(0, std::memory_order_relaxed);
        t->entry[i].value.store(0, std::memory_order_relaxed);
      }
      t->used = 0;
    }
  }
  g_mutex.reset();
}

}  // namespace gpuckpt
