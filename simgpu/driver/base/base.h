// Locks, reference counts and small tools that every file of the simulated driver uses.
//
// The driver imports libc only: no thread_local, no C++ run time (no_stdcpp.cc), pthreads directly.
// All memory comes from malloc and mmap by the PLT, so that a library that rewrites our GOT
// (gpuckpt's realm does) sees all of it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace simgpu {

class Mutex {
 public:
  void lock() { pthread_mutex_lock(&m_); }
  void unlock() { pthread_mutex_unlock(&m_); }
  pthread_mutex_t* raw() { return &m_; }

 private:
  pthread_mutex_t m_ = PTHREAD_MUTEX_INITIALIZER;
};

class Lock {
 public:
  explicit Lock(Mutex& m) : m_(&m) { m.lock(); }
  ~Lock() {
    if (m_) m_->unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void unlock() {
    m_->unlock();
    m_ = nullptr;
  }

 private:
  Mutex* m_;
};

// Waits on the monotonic clock.
class Cond {
 public:
  Cond();
  ~Cond() { pthread_cond_destroy(&c_); }
  void wait(Mutex& m) { pthread_cond_wait(&c_, m.raw()); }
  void wait_for(Mutex& m, uint64_t nanoseconds);
  void signal() { pthread_cond_signal(&c_); }
  void broadcast() { pthread_cond_broadcast(&c_); }

 private:
  pthread_cond_t c_;
};

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  // Returns false if the last reference is gone and the object is being deleted.
  bool retain_alive() {
    int n = refs_.load(std::memory_order_relaxed);
    while (n != 0 && !refs_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
    }
    return n != 0;
  }
  void release() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  std::atomic<int> refs_{1};
};

// Owns one reference. `Ref<T>::adopt(new T)` takes over the first one.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  // For an object whose memory is sure to exist, perhaps without any reference: then null.
  static Ref of_alive(T* p) { return adopt(p->retain_alive() ? p : nullptr); }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

// SplitMix64: good enough to shuffle, and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }

 private:
  uint64_t state_;
};

inline uint64_t round_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }
inline uint64_t round_down(uint64_t v, uint64_t to) { return v / to * to; }

uint64_t now_ns();                 // CLOCK_MONOTONIC
void sleep_ns(uint64_t);           // always makes a system call, also for 0
void say(const char* format, ...)  // one line to stderr, unbuffered
    __attribute__((format(printf, 1, 2)));

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr uint64_t kPage = 4096, kBigPage = 2 * kMiB;

// Makes an ioctl, as the real driver does when it changes something on the device. It fails and
// changes nothing, but a library that watches the driver's system calls sees it.
int device_ioctl();

}  // namespace simgpu
