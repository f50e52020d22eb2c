// cuMemAlloc: small allocations share 2 MiB blocks, large ones have their own mapping.
#pragma once

#include <iterator>
#include <map>

#include "driver/memory/address_space.h"

namespace simgpu {

class DeviceHeap {
 public:
  explicit DeviceHeap(Device* d) : device_(d) {}
  ~DeviceHeap() { clear(); }
  // Allocates, and enters the allocation into the address space. CUDA_ERROR_OUT_OF_MEMORY when the
  // device has no more memory.
  CUresult allocate(uint64_t size, Allocation*);
  void free(const Allocation&);  // already taken out of the address space's table
  void clear();                  // all blocks, with their entries in the table of allocations
  uint64_t reserved();           // physical bytes held
  // Makes the memory that the pool has allocated accessible to one more device, or no longer to it.
  void set_access(int device, bool on);

 private:
  struct Block {
    uint64_t used = 0;
    std::map<uint64_t, uint64_t> holes;  // offset -> length
  };
  CUresult new_block(uint64_t bytes, uint64_t* base);
  void drop_block(uint64_t base, uint64_t bytes);

  Device* const device_;
  Mutex mutex_;
  std::map<uint64_t, Block> small_;
  std::map<uint64_t, uint64_t> large_;
};

}  // namespace simgpu
