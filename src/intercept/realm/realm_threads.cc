// Threads, thread keys, exit and fork handlers of the driver.
#include <errno.h>
#include <limits.h>

#include <utility>

#include "base/heap.h"
#include "intercept/gate/gate.h"
#include "intercept/realm/realm_internal.h"

extern "C" {
void* gpuckpt_driver_thread_start(void*);
void gpuckpt_driver_thread_leave();
int __cxa_atexit(void (*)(void*), void*, void*);
int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
int __pthread_key_create(pthread_key_t*,
                         void (*)(void*));  // libc's pthread_key_create, past any interposer
}

namespace gpuckpt::realm_threads {
namespace {

struct DriverThread {
  uint64_t sp;  // first: gpuckpt_driver_thread_start writes here
  void* (*routine)(void*);
  void* arg;
  pthread_t thread;
  std::atomic<int> tid;  // or kStarting, kFree
  uint32_t generation;
  DriverThread* next;
};

constexpr int kStarting = 0;  // the kernel has the thread, and this code has not seen it run yet
constexpr int kFree = -1;
constinit Mutex g_lock;
constinit std::atomic<DriverThread*> g_first{nullptr};

DriverThread* take_record() {
  MutexLock locked(g_lock);
  for (DriverThread* t = g_first.load(); t; t = t->next) {
    if (t->tid.load() == kFree) {
      t->tid.store(kStarting);
      return t;
    }
  }
  constexpr size_t kBlock = 64;
  Region block = region_map(kBlock * sizeof(DriverThread));
  if (!block) return nullptr;
  auto* t = reinterpret_cast<DriverThread*>(block.data());
  for (size_t i = 0; i < kBlock; i++) {
    t[i].tid.store(i ? kFree : kStarting);
    t[i].next = i + 1 < kBlock ? &t[i + 1] : g_first.load();
  }
  g_first.store(t);
  return t;
}

// Thread keys, for pthread_key_delete at a rewind.
constexpr size_t kMaxKeys = 256;
constinit std::atomic<uint32_t> g_key[kMaxKeys] = {};  // key + 1; 0: free

// Keys of the driver's constructors: part of its pristine state, so the same numbers must stay
// valid with every thread's value gone.
struct ConstructorKey {
  pthread_key_t key;
  void (*destructor)(void*);
};
constexpr size_t kMaxConstructorKeys = 32;
constinit ConstructorKey g_constructor_key[kMaxConstructorKeys] = {};
constinit size_t g_constructor_keys = 0;

// Deleting and creating a key again ends all threads' values (libc numbers the lives of a key). A
// new key is the lowest free one, so those below are filled for a moment. Each step is one
// compare-and-exchange in libc: PARKED is fine.
void renew(const ConstructorKey& k) {
  constexpr size_t kAllKeys = PTHREAD_KEYS_MAX;
  static pthread_key_t filler[kAllKeys];
  size_t fillers = 0;
  pthread_key_delete(k.key);
  pthread_key_t got;
  while (fillers < kAllKeys && __pthread_key_create(&got, k.destructor) == 0) {
    if (got == k.key) break;
    filler[fillers++] = got;
  }
  while (fillers) pthread_key_delete(filler[--fillers]);
}

struct ExitHandler {
  void (*function)(void*);
  void* arg;
  uint32_t generation;
};
void run_exit_handler(void* p) {
  auto* h = static_cast<ExitHandler*>(p);
  if (h->generation == generation()) h->function(h->arg);
}

// Fork handlers take no argument: a few functions are made in advance.
struct ForkHandler {
  void (*call[3])();
  uint32_t generation;
};
constexpr size_t kForkHandlers = 16;
constinit ForkHandler g_fork[kForkHandlers] = {};
constinit std::atomic<uint32_t> g_forks{0};
template <size_t N, int When>
void run_fork_handler() {
  const ForkHandler& h = g_fork[N];
  if (h.generation == generation() && h.call[When]) h.call[When]();
}
struct ForkEntry {
  void (*entry[3])();
};
template <size_t... N>
constexpr auto fork_entries(std::integer_sequence<size_t, N...>) {
  struct Table {
    ForkEntry at[sizeof...(N)];
  };
  return Table{{{{run_fork_handler<N, 0>, run_fork_handler<N, 1>, run_fork_handler<N, 2>}}...}};
}

}  // namespace

extern "C" void* gpuckpt_driver_thread_body(DriverThread* t) {
  t->thread = pthread_self();
  t->tid.store(sys::gettid(), std::memory_order_release);
  gate_bypass_this_thread();
  // Started by a thread of ours (a replay) it would inherit a mask that keeps the park signal out.
  uint64_t park = 1ull << (33 - 1);
  sys::call(SYS_rt_sigprocmask, 1 /* SIG_UNBLOCK */, sys::ptr(&park), 0, sizeof park);
  void* result = nullptr;
  if (t->generation == generation()) {
    result = t->routine(t->arg);
  } else {  // it began after a restore: no thread is left that would join it
    pthread_detach(pthread_self());
  }
  t->tid.store(kFree, std::memory_order_release);
  return result;
}

extern "C" void gpuckpt_driver_thread_detach() { pthread_detach(pthread_self()); }

int create(pthread_t* thread, const pthread_attr_t* attr, void* (*routine)(void*), void* arg) {
  DriverThread* t = take_record();
  if (!t) return EAGAIN;
  t->routine = routine;
  t->arg = arg;
  t->generation = generation();
  int rc = pthread_create(thread, attr, gpuckpt_driver_thread_start, t);
  if (rc) t->tid.store(kFree);
  return rc;
}

void ended(pthread_t thread) {
  for (DriverThread* t = g_first.load(); t; t = t->next) {
    if (t->tid.load() > 0 && t->thread == thread) t->tid.store(kFree);
  }
}

bool find(int tid, uint64_t* pc, uint64_t* sp) {
  for (DriverThread* t = g_first.load(); t; t = t->next) {
    if (t->tid.load() != tid || !t->sp) continue;
    *pc = reinterpret_cast<uint64_t>(&gpuckpt_driver_thread_leave);
    *sp = t->sp;
    return true;
  }
  return false;
}

int key_create(pthread_key_t* key, void (*destructor)(void*)) {
  int rc = __pthread_key_create(key, destructor);
  if (rc) return rc;
  for (auto& k : g_key) {
    uint32_t none = 0;
    if (k.compare_exchange_strong(none, *key + 1)) break;
  }
  return 0;
}

int key_delete(pthread_key_t key) {
  for (auto& k : g_key) {
    uint32_t mine = key + 1;
    k.compare_exchange_strong(mine, 0);
  }
  return pthread_key_delete(key);
}

int at_exit(void (*function)(void*), void* arg, void* dso) {
  auto* h = static_cast<ExitHandler*>(heap_alloc(sizeof(ExitHandler)));
  if (!h) return -1;
  *h = {function, arg, generation()};
  return __cxa_atexit(run_exit_handler, h, dso);
}

int register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso) {
  static constexpr auto kEntries =
      fork_entries(std::make_integer_sequence<size_t, kForkHandlers>());
  uint32_t n = g_forks.fetch_add(1);
  if (n >= kForkHandlers) return ENOMEM;
  g_fork[n] = {{prepare, parent, child}, generation()};
  const ForkEntry& e = kEntries.at[n];
  return __register_atfork(e.entry[0], e.entry[1], e.entry[2], dso);
}

void rewind() {
  // pthread_key_delete is one compare-and-exchange on libc's table: no lock, no thread state.
  for (auto& k : g_key) {
    uint32_t key = k.exchange(0);
    if (key) pthread_key_delete(key - 1);
  }
  for (size_t i = 0; i < g_constructor_keys; i++) renew(g_constructor_key[i]);
  // A thread that was starting when the snapshot was taken begins in the restored process, and
  // still reads its record: used again, the record would make two threads run one routine.
  for (DriverThread* t = g_first.load(); t; t = t->next)
    if (t->tid.load() != kStarting) t->tid.store(kFree);
  g_lock.reset();
}

void after_fork() {
  g_lock.reset();
  for (DriverThread* t = g_first.load(); t; t = t->next) t->tid.store(kFree);
}

void constructor_key(pthread_key_t key, void (*destructor)(void*)) {
  if (g_constructor_keys < kMaxConstructorKeys) {
    g_constructor_key[g_constructor_keys++] = {key, destructor};
  }
}

}  // namespace gpuckpt::realm_threads

// Exported: the driver's constructors run before its imports can be rewritten, so their keys are
// seen here.
extern "C" __attribute__((visibility("default"))) int pthread_key_create(
    pthread_key_t* key, void (*destructor)(void*)) noexcept {
  int rc = __pthread_key_create(key, destructor);
  if (rc == 0 && gpuckpt::realm_loading_here()) {
    gpuckpt::realm_threads::constructor_key(*key, destructor);
  }
  return rc;
}
