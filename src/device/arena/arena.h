// The arena: where device memory (and small pinned host memory) comes from. Pure bookkeeping over a
// Backing, so that it runs in a unit test without a driver; arena_driver.h backs it with the
// driver's virtual memory calls.
//
// Address space is taken in large reservations and handed out in units of 512 bytes, as the native
// allocator does:
//   - below 2 MiB: from blocks of 2 MiB, several allocations each;
//   - from 2 MiB on: whole 2 MiB pages in one chunk (one handle), and, where rounding up would
//     waste more than 1/128 of the request, the last page as a block whose rest serves small
//     allocations.
// A chunk is what is committed (backed by memory) in one piece. Chunks are what a snapshot copies
// and a restore commits again at the same addresses.
//
// Owner: the DeviceMemory or HostPool that has it. Threads: none; the owner locks. Errors: those of
// Backing::commit come back untouched, with nothing changed.
#pragma once

#include <cstdint>

#include "device/base/memory.h"

namespace gpuckpt::device {

inline constexpr uint64_t kBlockBytes = 2 << 20;
inline constexpr uint64_t kUnitBytes = 512;
inline constexpr uint32_t kBlockUnits = kBlockBytes / kUnitBytes;

// Where the arena gets its memory. Results are 0 or the driver's error.
class Backing {
 public:
  // Takes address space: at least `bytes` (a multiple of kBlockBytes), aligned to kBlockBytes. More
  // may be got.
  virtual int reserve(uint64_t bytes, uint64_t* address, uint64_t* got) = 0;
  // Backs [address, address+bytes) with memory; `handle` is whatever `decommit` wants back.
  virtual int commit(uint64_t address, uint64_t bytes, uint64_t* handle) = 0;
  virtual void decommit(uint64_t address, uint64_t bytes, uint64_t handle) = 0;

 protected:
  ~Backing() = default;
};

struct Block;

struct Chunk : RangeNode {  // begin, size: multiples of kBlockBytes
  uint64_t handle = 0;
  Block* block = nullptr;  // null: belongs to one large allocation
};

// What cuMemAdvise and cuMemPrefetchAsync said about managed memory; -2: no device, -1: the host.
struct Advice {
  int preferred = -2, last_prefetch = -2;
  int read_mostly = 0;
  uint32_t accessed_by = 0;  // bit per device; bit 31: the host
};

struct Allocation : RangeNode {  // begin, size as requested
  uint64_t id = 0;               // unique in the process: CU_POINTER_ATTRIBUTE_BUFFER_ID
  uint64_t context = 0;          // the application's name of the owner
  uint64_t pool = 0;             // memory pool it came from, 0: none
  uint64_t ready = 0;            // pool memory: a state of hooks_pool.cc
  uint32_t flags = 0;            // of the call that made it (pinned memory)
  bool managed = false;          // host memory that answers as managed
  bool shared = false;           // with other processes (ipc.h)
  bool sync_memops = false;      // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  uint32_t site = 0;             // where it was asked for (call_sites.h)
  Advice advice;
};

// A chunk cut into units.
struct Block {
  Chunk* chunk = nullptr;
  uint64_t used[kBlockUnits / 64] = {};
  uint32_t free_units = kBlockUnits;
  uint32_t largest = kBlockUnits;  // longest free run
  uint32_t bin = 0;
  Block *next = nullptr, *previous = nullptr;  // in its bin
};

class Arena {
 public:
  void init(Backing* backing) { backing_ = backing; }

  // `align` a power of two up to 4096. The allocation stays owned by the arena.
  int allocate(uint64_t bytes, uint64_t align, Allocation** out);
  void free(Allocation* allocation);
  // Another use of the same units, with an id of its own. `bytes` rounds to as many units as
  // before.
  void reuse(Allocation* allocation, uint64_t bytes);
  // Gives cached empty blocks back. True when there were any.
  bool trim();

  Allocation* covering(uint64_t address) const {
    return static_cast<Allocation*>(allocations_.covering(address));
  }
  Allocation* starting(uint64_t address) const;
  Allocation* first() const { return static_cast<Allocation*>(allocations_.first()); }
  Allocation* next(const Allocation* a) const {
    return static_cast<Allocation*>(allocations_.next(a));
  }
  Chunk* first_chunk() const { return static_cast<Chunk*>(chunks_.first()); }
  Chunk* next_chunk(const Chunk* c) const { return static_cast<Chunk*>(chunks_.next(c)); }
  Chunk* chunk_at(uint64_t address) const { return static_cast<Chunk*>(chunks_.covering(address)); }
  // Is anything alive in [address, address+bytes)?
  bool occupied(uint64_t address, uint64_t bytes) const;

  // Changes when an allocation ends; read without the lock.
  uint64_t ended() const { return __atomic_load_n(&ended_, __ATOMIC_ACQUIRE); }
  uint64_t committed_bytes() const { return committed_; }
  uint64_t cached_bytes() const { return cached_ ? kBlockBytes : 0; }
  uint64_t allocated_bytes() const { return allocated_; }
  uint64_t count() const { return count_; }

 private:
  int allocate_small(uint64_t bytes, uint64_t align, uint64_t* address);
  int allocate_large(uint64_t bytes, uint64_t* address);
  int take_space(uint64_t bytes, uint64_t* address);
  void give_space(uint64_t address, uint64_t bytes);
  int commit(uint64_t address, uint64_t bytes, Chunk** out);
  void decommit(Chunk* chunk);
  int make_block(uint64_t address, Block** out);
  void drop_block(Block* block, bool keep_one);
  void mark(Block* block, uint32_t unit, uint32_t units, bool used);
  void link(Block* block);
  void unlink(Block* block);
  void free_range(uint64_t address, uint64_t bytes);

  static constexpr uint32_t kBins =
      14;  // by log2 of the longest free run; the last: 4096 units; 0 units: unlinked
  Backing* backing_ = nullptr;
  RangeTree allocations_, chunks_, space_;
  Block* bins_[kBins] = {};
  Block* cached_ = nullptr;  // one empty block is kept so that alloc/free pairs stay cheap
  uint64_t committed_ = 0, allocated_ = 0, count_ = 0, ended_ = 0;
};

// Unique in the process, never reused.
uint64_t next_buffer_id();

}  // namespace gpuckpt::device
