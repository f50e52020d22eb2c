// Device addresses and what lies behind them.
//
// A device address is a real address of the process (as with UVA), reserved there as PROT_NONE so
// that the host faults on touching it. The bytes live in a Backing elsewhere. Memory of the host
// that kernels may touch (pinned, registered, managed) is its own backing at its own address. Three
// tables, one lock:
//   reservations  address ranges that are ours
//   mappings      what kernels and copies can reach (page granular, as hardware sees it)
//   allocations   what the API calls one allocation (pointer attributes, address ranges)
#pragma once

#include <iterator>
#include <map>
#include <vector>

#include "driver/abi/cuda_abi.h"
#include "driver/base/base.h"
#include "ptx/engine.h"

namespace simgpu {

class Context;
class Device;
class Object;

// Physical memory of a device (charged to it), or of the host when device is null.
class Backing : public RefCounted {
 public:
  // Returns null if the device or the host has no memory left.
  static Ref<Backing> create(Device*, uint64_t size, bool shareable);
  static Ref<Backing> import_fd(int fd);  // dups; null when it is no exported memory of ours
  // Moves the memory into a file, `fd`, unless it is in one; waits until nothing on the devices
  // touches memory. False where a kernel never ends, or the host lacks memory.
  bool share();
  ~Backing() override;

  Device* device = nullptr;
  uint8_t* host = nullptr;
  uint64_t size = 0;
  bool shareable = false;  // as it was asked for
  int fd = -1;
  uint64_t file = 0;  // its inode, once it is shared
};

enum class MemoryType : uint8_t { kDevice, kPinned, kRegistered, kManaged, kVirtual, kModule };

struct Mapping {
  uint64_t begin = 0, end = 0;
  uint8_t* host = nullptr;              // where `begin` lies
  Ref<Backing> backing;                 // may be null (memory of the host)
  int device = -1;                      // -1: of the host, visible to all, or
  bool by_access = false;               //   to whom the masks say (cuMemCreate)
  bool peer = false;                    // also visible to contexts with peer access to `device`
  uint32_t readable = 0, writable = 0;  // device masks, for cuMemSetAccess; unused for host memory
  bool host_read_only = false;
};

struct Allocation {
  uint64_t base = 0, size = 0, id = 0;
  MemoryType type = MemoryType::kDevice;
  int device = 0;
  uint64_t context = 0;  // Context::id; 0: none
  CUcontext context_handle = nullptr;
  unsigned flags = 0;        // host alloc/register flags, managed attach flags
  uint64_t block = 0;        // where its mapping starts
  uint64_t block_bytes = 0;  // small allocations: bytes taken of the block
  Object* pool = nullptr;    // for freeing only; the pool outlives it
  bool sync_memops = false;
  bool graph = false;                         // made by an allocation node
  bool variable = false;                      // of a module: not for cuMemFree
  CUmemGenericAllocationHandle physical = 0;  // kVirtual
  bool imported = false;                      // of another process's pool
  bool freeing = false;                       // cuMemFreeAsync is on its way
  int preferred = CU_DEVICE_INVALID, read_mostly = 0, last_prefetch = CU_DEVICE_INVALID;
  uint32_t accessed_by = 0;
};

// One contiguous piece of memory, kept mapped while this lives.
struct Piece {
  uint8_t* host = nullptr;
  uint64_t length = 0;
  Ref<Backing> backing;
  bool on_device = false;
};

class AddressSpace {
 public:
  // A free range of the address space, PROT_NONE. `hint` 0 means anywhere. Never fails while the
  // process has space.
  uint64_t reserve(uint64_t size, uint64_t align, uint64_t hint);
  void unreserve(uint64_t base);
  bool reserved(uint64_t address, uint64_t* begin = nullptr, uint64_t* end = nullptr);

  void map(Mapping);
  // Removes the mappings that lie wholly in [begin, end); false when they do not cover it exactly.
  bool unmap(uint64_t begin, uint64_t end);
  bool covered(uint64_t begin, uint64_t end);
  bool overlaps(uint64_t begin, uint64_t end);
  bool set_access(uint64_t begin, uint64_t end, int device, bool read, bool write);
  // Unmaps on the host, which reaches only memory of cuMemCreate that is mapped there.
  bool set_host_access(uint64_t begin, uint64_t end, bool read, bool write);
  bool mapping(uint64_t address, Mapping* out);
  // Makes the mapping at `address` accessible to one more device, or no longer to it.
  void grant(uint64_t address, int device, bool on = true);

  void add(const Allocation&);
  bool remove(uint64_t base, Allocation* out);
  bool allocation(uint64_t address, Allocation* out);
  bool allocation_at(uint64_t base, Allocation* out);
  bool allocation_overlaps(uint64_t begin, uint64_t end, Allocation* out);
  template <class F>
  bool update(uint64_t address, F change) {
    pthread_rwlock_wrlock(&lock_);
    Allocation* a = find_allocation(address);
    if (a) change(*a);
    pthread_rwlock_unlock(&lock_);
    return a != nullptr;
  }
  std::vector<Allocation> of_context(uint64_t context);

  // Whether [address, address+length) may be the end of a copy, and whether it is the device's.
  // Plain host memory is assumed to be accessible; memory that the driver reserved and did not
  // allocate is not.
  enum class Place { kPageable, kHost, kDevice, kManaged, kBad };
  Place classify(uint64_t address, uint64_t length);
  // The piece at `address`, at most `length` bytes. False: nothing there for `context`.
  bool pin(const Context&, uint64_t address, uint64_t length, bool write, Piece* out);

  // Kernels' view; see Context::find.
  bool find(const Context&, uint64_t address, ptx::Segment* out);

  void watch(ptx::Memory*);  // its epoch moves with every change
  void unwatch(ptx::Memory*);

 private:
  Mapping* find_mapping(uint64_t address);
  Allocation* find_allocation(uint64_t address);
  void changed();

  pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
  std::map<uint64_t, uint64_t> reservations_;  // begin -> end
  std::map<uint64_t, Mapping> mappings_;
  std::map<uint64_t, Allocation> allocations_;
  std::vector<ptx::Memory*> watchers_;
};

// Memory of the host for the driver's own use, at a random place near the process's other mappings.
void* map_somewhere(uint64_t size, int fd);

}  // namespace simgpu
