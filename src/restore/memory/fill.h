// Puts the contents of a snapshot's host memory into a new process that has everything mapped and
// waits.
//
// Large anonymous mappings are filled through a userfaultfd of that process (UFFDIO_COPY), which
// creates a page with its contents; process_vm_writev makes the kernel clear it first, look it up
// and pin it. It takes no privileges, because only this process is served. All else, and everything
// where there is no userfaultfd, or where large pages are wanted, which a userfaultfd does not
// make, is written by process_vm_writev.
//
// Owner: the supervisor. Threads: ProcessMemory::write() from several at once. Errors: a
// Status.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

#include "restore/image/image.h"
#include "restore/memory/memory_loader.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// The data of the snapshot's host memory, by address.
std::vector<store::Extent> data_extents(const store::SnapshotReader&);
// The first extent that ends behind `address`.
std::vector<store::Extent>::const_iterator extent_at(const std::vector<store::Extent>&,
                                                     uint64_t address);

// The anonymous mappings with so much data that a userfaultfd is worth it, by address, as wholes.
// Excluded are mappings whose pages are not created by the first touch (MAP_LOCKED, growing stacks,
// huge pages of hugetlbfs).
std::vector<AddressRange> ranges_for_userfaultfd(const Image&, const store::SnapshotReader&);

// The memory of another process, to be written from several threads at once.
class ProcessMemory {
 public:
  // Uses process_vm_writev only.
  explicit ProcessMemory(pid_t pid) : pid_(pid) {}
  // Uses a userfaultfd of the process (no API handshake yet; may be none), in which the pages of
  // `image` are missing.
  ProcessMemory(pid_t pid, Fd userfaultfd, const Image& image, const store::SnapshotReader& reader);

  // kExitRefused: writing to another process is not allowed here.
  store::Status write(uint64_t address, std::span<const uint8_t> bytes) const;

 private:
  store::Status copy_in(uint64_t address, std::span<const uint8_t> bytes) const;

  pid_t pid_;
  Fd userfaultfd_;
  std::vector<AddressRange> ranges_;  // registered with it
};

// Writes all of it but what is in `there`, from `threads` threads at once (0: all cores).
// kExitRefused: as above; use load_pages.
store::Status fill_process(const store::SnapshotReader&, const std::vector<AddressRange>& there,
                           unsigned threads, const ProcessMemory&);
// The extents outside of `ranges`.
store::Status fill_all_but(const store::SnapshotReader&, const std::vector<AddressRange>& ranges,
                           const ProcessMemory&);

}  // namespace gpuckpt::restore
