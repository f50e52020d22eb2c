// What kernels launch: NVIDIA's device runtime as libcudadevrt.a offers it to nvcc's code
// (functions named __cudaCDP2*, and what is asynchronous beside launches).
//
// A grid that a kernel launches runs after the kernel that launched it: no kernel can wait for one.
// What a block gave to its streams runs in the order in which it was given, one after the other,
// and what is for the end (cudaStreamTailLaunch) after all else. The launch as a whole is over when
// all of that is.
#pragma once

#include <pthread.h>

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// The functions that there are; null where `name` is none of them. Threads: any.
using DeviceCall = uint64_t (*)(Ctx&, const CallSite&, uint32_t lane);
DeviceCall device_call(Text name);

class Launches {
 public:
  Launches() = default;
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  ~Launches();

  enum class Kind : uint8_t { kGrid, kCopy, kFill };
  // Something to do, with its parameters behind it.
  struct Work {
    Work* next;
    Kind kind;
    bool given, tail;
    uint64_t block;  // of the launching grid, counted in a row
    uint64_t order;
    uint32_t param_bytes;
    Launch launch;
    uint64_t to, from, bytes;  // copies; fills: `from` is the value
  };

  // ---- while a grid runs: any worker ----
  // Room for parameters, as a generic address; 0: none.
  uint64_t make(Work**, uint32_t param_bytes);
  Work* find(uint64_t address);
  uint8_t* resolve(uint64_t address, uint32_t bytes);
  // What was made goes to a stream of the block.
  void give(Work*, const Ctx&, uint64_t stream);
  uint64_t handle() { return 0x100 + __atomic_fetch_add(&handles_, 1, __ATOMIC_RELAXED); }
  std::atomic<uint32_t> error{0};  // cudaGetLastError

  // ---- between grids: the launching thread ----
  // Puts what the last grid gave before all that was there already.
  void collect();
  Work* next();  // the caller's, by `drop`
  static void drop(Work* w) { free(w); }

 private:
  static constexpr size_t kMost = 1u << 16;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Vec<Work*> made_;
  Work* waiting_ = nullptr;
  uint64_t given_ = 0, handles_ = 0;
};

// A copy or fill. False: an address is outside every allocation.
bool perform(Memory&, const Launches::Work&);

}  // namespace simgpu::ptx
