// Between vmm.cc and hooks_vmm.cc: what is known of the application's own virtual memory.
//
// Threads: `lock` of the Vmm guards everything; with the gate closed nobody else is there.
#pragma once

#include "device/arena_driver.h"
#include "device/memory.h"

namespace gpuckpt::device {

struct Reserved : RangeNode {};

// Memory lives while a handle, a mapping or a descriptor holds it.
struct Physical {
  Physical *next = nullptr, *previous = nullptr;
  uint64_t size = 0;
  CUmemAllocationProp properties = {};
  uint32_t handles = 0, mappings = 0;
  uint32_t exported = 0;  // records of descriptors, which may be closed by now
  bool shared = false;    // a descriptor was given for it, once
  bool imported = false;  // from such a descriptor, by this process
  bool open = false;      // one was open at the last look with the gate just closed
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
};

struct MemoryHandle {
  Physical* memory;
  uint32_t references;
  uint32_t ours;  // of them, references that the driver knows nothing of: counted before a restore
};

// A descriptor that the driver gave for memory. Memory in a file of its own is known by the file;
// in what has one file for all (/dev/nvidiactl), only while the descriptor is open: there is one
// record for its number, the latest.
struct Exported {
  Physical* memory;
  int fd;
  uint64_t dev, ino;
  bool own_file;
};

// A number that stands for memory at the snapshot (the descriptor given, or a duplicate of it).
struct SharedFd {
  Physical* memory;
  int fd, flags;  // FD_CLOEXEC
};

struct Vmm {
  static constexpr uint32_t kMostShared = 1024;

  Lock lock;
  RangeTree reservations, mappings;
  HashMap<MemoryHandle> handles;  // by name
  Physical* first = nullptr;
  Vector<Exported> exported;
  bool doubtful =
      false;  // an open descriptor may stand for memory, and it cannot be told for which
  uint32_t shared_count = 0;
  SharedFd shared[kMostShared];

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
  bool add_exported(Physical* memory, int fd);
  void forget_exported(size_t index);
  // What `fd` stands for; null: nothing, or (`doubtful`, which may be null) what cannot be told.
  Physical* identify(int fd, bool* doubtful);
  // Looks up, in one pass for all memory, what Physical keeps of it.
  void index();
};

Vmm& vmm();

}  // namespace gpuckpt::device
