// The driver's whole state in one process, which cuInit makes and which lives until the process
// ends, and the check that every entry point makes first.
#pragma once

#include <vector>

#include "driver/abi/cuda_abi.h"
#include "driver/base/base.h"
#include "driver/base/object.h"
#include "driver/memory/address_space.h"
#include "driver/module/module_space.h"
#include "ptx/engine.h"

namespace simgpu {

class Context;
class Device;
class Stream;

struct Options {
  int devices = 1;
  uint64_t memory = 80 * kGiB;
  uint64_t last_memory = 0;  // of the last GPU, when it is another model
  uint64_t seed = 0;
  int sm = 120;
  unsigned threads = 0;
  double slow_copy = 0;  // GB/s; 0: no limit
  uint64_t lost = 0;     // this launch loses the device
  unsigned part =
      0;  // least multiprocessors of a part of a device; 0: as its architecture requires
  bool ignore_hints = false;
  bool log = false;
  const char* fail = nullptr;
  const char* report = nullptr;
};
void read_options(Options*);

struct State {
  Options options;
  std::vector<Device*> devices;
  HandleTable handles;
  AddressSpace memory;
  ModuleSpace libraries{kLibraries, kModuleRegion};
  Random random;  // fresh in every process; guarded by random_mutex
  Mutex random_mutex;
  Mutex contexts_mutex;  // making and ending contexts
  Mutex live_mutex;
  std::vector<Context*> live;  // active contexts; guarded by live_mutex, held briefly
  ptx::Pool* pool = nullptr;
  std::atomic<uint64_t> launches{0};
  std::atomic<uint64_t> next_id{1};
  std::atomic<bool> exiting{false};

  uint64_t random_below(uint64_t n) {
    Lock lock(random_mutex);
    return random.below(n);
  }
};

// Null before cuInit and in a forked child.
State* state();
// Makes the state once per process.
CUresult initialise();

// One entry point's name, for SIMGPU_FAIL and SIMGPU_LOG; constant initialised.
struct Site {
  const char* name;
  std::atomic<uint64_t> calls{0};
};

// What an entry point may be called without.
enum Needs : unsigned {
  kNothing = 0,
  kInitialised = 1,
  kCallbackAllowed = 2,  // may also be called inside a host function
  kWhileLocked = 4,      // belongs to the driver's own checkpoint, so it does not wait for it
};
CUresult enter(Site&, unsigned needs);

#define SIMGPU_ENTER_WITH(name, needs) \
  static Site simgpu_site{name};       \
  if (CUresult simgpu_r = enter(simgpu_site, needs); simgpu_r != CUDA_SUCCESS) return simgpu_r
#define ENTER(name) SIMGPU_ENTER_WITH(#name, kInitialised)

// Allocates after a random number of unused blocks, so that handles differ from process to process
// also under the same seed.
void* shuffled_malloc(size_t);
void waste_some(uint64_t most_blocks);
// Ids of streams, contexts and buffers: unique in the process, different in the next one.
uint64_t fresh_id();

}  // namespace simgpu
