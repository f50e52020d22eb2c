// One simulated GPU.
#pragma once

#include "driver/base/object.h"
#include "driver/base/state.h"

namespace simgpu {

class Pool;

class Device {
 public:
  // `gpu` counts the machine's GPUs; the ordinal is the number by which the program knows the
  // device.
  Device(int ordinal, int gpu, const Options&);

  // Moves the device to another GPU (the driver's own checkpoint moves programs). Charges nothing.
  void become(int gpu, const Options&);

  // Charges physical memory. False: not enough is left.
  bool charge(uint64_t bytes);
  void discharge(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t total() const { return total_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

  int attribute(CUdevice_attribute) const;

  const int ordinal;
  CUuuid uuid;
  char name[64];
  std::atomic<bool> lost{false};

  // Guarded by State::contexts_mutex.
  Ref<Context> primary;
  int primary_retained = 0;
  unsigned primary_flags = 0;
  Ref<Pool> default_pool, current_pool;

  static constexpr int kMultiprocessors = 24;
  int threads_per_sm() const {
    return sm_ >= 120 || sm_ == 86 || sm_ == 89 ? 1536 : sm_ == 75 ? 1024 : 2048;
  }
  int blocks_per_sm() const { return sm_ >= 120 ? 24 : sm_ == 75 ? 16 : 32; }
  int shared_per_sm() const { return sm_ >= 120 ? 100 * 1024 : sm_ == 75 ? 64 * 1024 : 228 * 1024; }
  int shared_optin() const { return shared_per_sm() - 1024; }
  int sm() const { return sm_; }

 private:
  const int sm_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> used_{0};
};

// The GPUs that CUDA_VISIBLE_DEVICES lists (null: all), in its order.
std::vector<int> visible_gpus(const char* list, int gpus);

// The GPU of that UUID; -1: the machine has none.
int gpu_of(const CUuuid&, const Options&);

// Null for an ordinal that does not exist.
Device* device_of(CUdevice);

}  // namespace simgpu
