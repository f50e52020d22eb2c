// The object behind a mapping (shared memory, a file): copied while the process is parked.
//
// Reading a page of shared memory that was never written allocates it, in the running program and
// for good: a sparse object would grow to its full size. So the object is asked which pages it has,
// by its descriptor (SEEK_DATA) where one can be opened, else by mincore, and only these are read.
// Where the process may not open the object (an anonymous one, without CAP_CHECKPOINT_RESTORE) and
// a part of it is swapped out, which mincore does not tell, all of it is read.
//
// Owner: the caller; closes its descriptor. Threads: PARKED, the I/O thread. Errors: false, with
// the Capture's failure.
#pragma once

#include <sys/stat.h>

#include "base/procfs/proc.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

class MappedObject {
 public:
  // The one that `mapping` maps. `name`: by which it can be opened; null: it has none. `memory`: it
  // is known to be shared memory.
  MappedObject(const MapsLine& mapping, const char* name, bool memory);
  ~MappedObject();
  MappedObject(const MappedObject&) = delete;
  MappedObject& operator=(const MappedObject&) = delete;

  // Returns false if the object could not be opened, so that its size is not known.
  bool stat(struct stat*) const;

  // PARKED, on the I/O thread. Copies what `space` does not hold yet of [offset, offset + bytes),
  // which is mapped at `from` in `v`; an object can be mapped several times. `once`: by one process
  // of the job; parts that another one has memory ready for are left to copy_deferred(). False: no
  // memory.
  bool copy(Capture*, const process::Vma& v, uint64_t space, uint64_t offset, uint64_t from,
            uint64_t bytes, bool once);
  // PARKED, on the I/O thread, when all processes of the job have copied. Copies the deferred parts
  // that no process has copied. False: no memory.
  static bool copy_deferred(Capture*);
  // PARKED, on the I/O thread. The same for what no mapping shows of shared memory without a name:
  // by remap_file_pages and mremap the program comes to these pages again. Nothing where the
  // process may not open the object.
  bool copy_unmapped(Capture*, uint64_t space, uint64_t size);
  // PARKED, on the I/O thread. The same of such memory that the process may not open and maps at
  // `mapping`, in pieces of `mapped` bytes together: what lies between them, and about as much
  // behind the last one, which ends at `end`. It is shown by another mapping for a moment. False:
  // no memory; `seen`: false where it cannot be shown.
  static bool copy_hidden(Capture*, uint64_t space, uint64_t mapping, uint64_t end, uint64_t mapped,
                          bool* seen);

 private:
  struct Target {
    Capture* capture;
    uint64_t space, delta;  // delta: from an offset to its address
  };
  bool copy_missing(Capture*, const process::Vma&, uint64_t space, uint64_t from, uint64_t offset,
                    uint64_t end);
  bool defer(Capture*, const process::Vma&, uint64_t space, uint64_t offset, uint64_t end) const;
  bool copy_by_descriptor(const Target&, uint64_t offset, uint64_t end);
  bool has_no_holes() const;
  bool copy_resident(const Target&, uint64_t offset, uint64_t end);
  bool copy_data(const Target&, uint64_t offset, uint64_t end);
  bool copy_huge_pages(const Target&, uint64_t page, uint64_t offset, uint64_t end);

  const MapsLine& mapping_;
  int fd_ = -1;
  bool memory_;        // shared memory: its pages are all there is of it
  bool huge_ = false;  // of the huge page pool: fd_ does not tell which pages exist
};

}  // namespace gpuckpt
