// What vmm.cc and hooks_vmm.cc know of the application's own virtual memory. For these files only.
//
// Owner: process-wide, part of every snapshot. Threads: `lock` of the Vmm guards everything; while
// the gate is closed only the device worker runs. Errors: null or false when there is no memory for
// a record.
#pragma once

#include "device/arena/arena_driver.h"
#include "device/base/lock_order.h"
#include "device/base/memory.h"
#include "device/sharing/shareable.h"

namespace gpuckpt::device {

struct Reserved : RangeNode {};

// Memory lives while a handle, a mapping or a descriptor holds it. Of what several processes hold
// one has the record that counts: the contents are in its snapshot, and a restore makes the memory
// there.
struct Physical {
  Physical *next = nullptr, *previous = nullptr;
  uint64_t size = 0;
  CUmemAllocationProp properties = {};
  uint32_t handles = 0, mappings = 0;
  uint32_t exported = 0;  // descriptors given for it that may still exist
  SharedName name;
  bool foreign = false;  // it is another process's
  OwnFd ticket;          // then: a duplicate of the descriptor it came by
  // Our own reference, held while descriptors for the memory exist that the program has released.
  CUmemGenericAllocationHandle kept = 0;
  // Of the host's: what it held at the last snapshot.
  char* contents = nullptr;
  bool showing = false;
  uint64_t shown = 0;  // where captures map it; 0: not yet
  CUmemGenericAllocationHandle replayed = 0;
  // As Vmm::index() found them.
  uint64_t handle = 0;     // a name for it; 0: there is none
  uint64_t mapped_at = 0;  // a mapping, of all of it when there is such a one; 0: none
  bool mapped_whole = false;
};

struct Mapped : RangeNode {
  uint64_t offset = 0;
  Physical* memory = nullptr;
  uint8_t access[kMaxDevices] = {};  // CUmemAccess_flags
  CUmemAccessDesc host = {};         // the host's, when it has any
};
inline bool is_of_host(const CUmemLocation& l) { return l.type != CU_MEM_LOCATION_TYPE_DEVICE; }

// What a descriptor for it says.
Shareable shareable_of(const Physical* memory);

struct MemoryHandle {
  Physical* memory;
  uint32_t references;
  uint32_t ours;  // of them, references that the driver knows nothing of: counted before a restore
};

// A descriptor that was given for memory: our end of it.
struct Exported {
  Physical* memory;
  OwnFd end;
};

struct Vmm {
  Mutex lock{kVmmLock};
  RangeTree reservations, mappings;
  HashMap<MemoryHandle> handles;  // by name
  Physical* first = nullptr;
  Vector<Exported> exported;
  size_t sweep_at = 64;  // descriptors
  uint32_t kept = 0;     // how many allocations only descriptors hold

  template <typename F>
  void each_mapping(F f) {
    for (RangeNode* n = mappings.first(); n;) {
      auto* mapping = static_cast<Mapped*>(n);
      n = mappings.next(n);
      f(mapping);
    }
  }
  // Makes memory with one handle. Null: no memory for the record.
  Physical* add(uint64_t handle, size_t size, const CUmemAllocationProp& properties);
  bool add_handle(Physical* memory, uint64_t name);
  void drop_if_unused(Physical* memory);
  // Before the last handle or mapping is released: takes a reference of our own by `take`, if a
  // descriptor for the memory exists.
  template <typename Take>
  void keep_for_descriptors(Physical* memory, Take take) {
    if (memory->handles + memory->mappings > 1 || memory->kept || !memory->exported) return;
    sweep();
    if (!memory->exported || (memory->kept = take()) == 0) return;
    ++kept;
  }
  void drop_reference(Physical* memory);
  bool add_exported(Physical* memory, const OwnFd& end);
  // Forgets descriptors that exist nowhere any more. The other one now and then: each is asked for.
  void sweep();
  void sweep_sometimes();
  Physical* named(const SharedName& name);
  // Looks up, in one pass for all memory, what Physical keeps of it.
  void index();
};

Vmm& vmm();

}  // namespace gpuckpt::device
