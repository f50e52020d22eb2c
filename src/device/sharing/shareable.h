// Shareable handles of memory and pools (cuMemExportToShareableHandle and its like): descriptors
// that tell to which memory or pool they belong, in whatever process they turn up.
//
// Ours is one end of a socket pair in which a message waits: every process that has the descriptor
// can peek at it, none consumes it. The message names what the handle is of, and carries the
// driver's own descriptor for it. Like the driver's it can be duplicated, inherited, sent and
// closed, and keeps memory alive while it exists. The other end stays with the process that made
// it, and reports when the descriptor is closed everywhere. (The driver's own descriptors are all
// of one file and tell nothing.)
//
// To a snapshot they are sockets like any others, but for the message: a restored process sends it
// again, with the driver's new descriptor.
//
// Owner: an OwnFd belongs to the record that holds it; descriptors that functions return are the
// caller's. Threads: hooks, inside the gate; the device worker; PARKED: is_shareable(). Errors: the
// driver's result, -1 or false.
#pragma once

#include "intercept/spec/cuda_types.h"

#include <cstddef>
#include <cstdint>

namespace gpuckpt::device {

// The driver's own descriptors. What `export_memory` gives is the caller's to close: not the
// driver's, not the program's.
CUresult export_memory(CUmemGenericAllocationHandle memory, int* fd);
CUresult import_memory(int fd, CUmemGenericAllocationHandle* out);

// What several processes call a piece of memory, or a pool.
struct SharedName {
  int32_t pid = 0;  // of the process that made it; 0: it was not shared
  uint32_t number = 0;
  uint64_t identity = 0;  // of that process: ids are used again
  bool operator==(const SharedName& o) const {
    return pid == o.pid && number == o.number && identity == o.identity;
  }
};
SharedName new_shared_name();

struct Shareable {
  enum Kind : uint32_t { kMemory, kPool };
  char magic[16] = {};
  Kind kind = kMemory;
  uint32_t unused = 0;  // sent to other processes: no byte is left as it was
  SharedName name;
  uint64_t size = 0;
  CUuuid device = {};
};
// On device `device`, as the ordinals are here.
Shareable make_shareable(Shareable::Kind kind, const SharedName& name, int device);
int device_with(const CUuuid& device);  // -1: there is none here

// A descriptor of ours with a high number, out of the way of the program's. What the program has
// closed, together with all others, is no longer ours.
struct OwnFd {
  int fd = -1;
  uint64_t file = 0;
  bool is_open() const;
  void close();
  void restored();  // the same number, another file
};
OwnFd keep_high(int fd);       // takes `fd`
OwnFd duplicate_high(int fd);  // leaves it

// The program's descriptor and the end that stays; -1: there can be none. `real` (-1: none) is
// sent along and stays the caller's.
int share(const Shareable& what, int real, OwnFd* end);
// Once more, in a restored process.
bool share_again(const Shareable& what, int real, const OwnFd& end);
// No descriptor for it exists any more, nor can another be made.
bool closed_everywhere(const OwnFd& end);

// What `descriptor` is of, and the driver's descriptor for that (-1: none came along), the caller's
// to close. Waits at most that long. False: it is none of ours.
bool look_at_shareable(int descriptor, uint64_t patience_us, Shareable* what, int* real);

// PARKED. Is it such a message?
bool is_shareable(const void* message, uint64_t bytes);

}  // namespace gpuckpt::device
