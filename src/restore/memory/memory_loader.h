// Memory of a snapshot for the launcher: shared memory, files without a name and the bytes of
// private memory, as descriptors that the launcher maps.
//
// Owner: the Member has the Memory, whose descriptors close themselves. Threads: one, but for
// reading the store. Errors: a Status.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/descriptors/fd.h"
#include "restore/image/image.h"
#include "restore/protocol/plan.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

using AddressRange = store::SnapshotReader::Range;

// Folders that had lost their names and were made again.
using Folders = std::map<FileKey, Fd>;

// Seals that must be set before anything is mapped, because a mapping would prevent them. The
// others are added at the end (PlanFd::seals).
inline constexpr uint32_t kEarlySeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// Memory of the snapshot, ready to be mapped by the launcher. Made once, used for every attempt to
// start.
struct Memory {
  // Holds all data extents of kSpaceHost, one after the other. Empty unless load_pages was called:
  // mostly the store writes them directly into the new process.
  Fd pages;
  bool pages_loaded = false;
  bool lazy = false;              // large mappings are filled while the program runs (pager.h)
  std::optional<uint64_t> steps;  // Plan::steps
  Fd device;                      // a DeviceRing (device_ring.h); none: no device memory
  std::vector<PlanFill> fills;
  std::vector<PlanExtent> extents;  // zeros in device memory
  std::vector<Fd> files, shared;    // by index of Image::files and Image::shared
  // The same objects opened with the rights of the program's other mappings: files open for
  // writing, shared memory open for reading only.
  std::map<size_t, Fd> files_to_write, shared_to_read;
  std::map<size_t, int> segments;  // System V: index of Image::shared -> its id now
  // Files with a name whose contents are in the snapshot (write_named_files).
  struct Named {
    Fd file;
    std::string path;
    uint64_t space, size;
  };
  std::vector<Named> named;
  std::vector<std::pair<int, Fd>> unlinked;  // descriptor number -> its contents
  // Of these: those that get the memfd's first description (FdMaker::make_memory)
  std::set<int> original;
  std::shared_ptr<Folders> folders;  // of all processes of a job
  std::vector<std::pair<std::string, std::vector<uint8_t>>> blobs;
  // Mappings that the process inherits at its birth (memory/common_memory.h), and their
  // addresses then.
  struct Inherited {
    AddressRange range;
    uint64_t at;
  };
  std::vector<Inherited> inherited;
  std::vector<AddressRange> foreign;  // pages in them that the process does not have
};

// Files in memory that several processes of a job share, by device (as in /proc/PID/maps) and
// inode. `whole`: its size, contents and seals are set.
struct SharedFile {
  Fd file;
  bool whole = false;
  bool named = false;                  // it is a file with a name
  bool original_given = false;         // a description of a memfd has the memfd's first one
  bool in_pieces = false;              // a process has only a part of this System V segment mapped
  std::optional<int> segment{};        // its id now
  std::vector<store::Extent> there{};  // what it has already, where it is not whole
};
using SharedFiles = std::map<std::pair<uint64_t, uint64_t>, SharedFile>;

// Opens the files that have a name in this process. Called first, for all processes of a job.
store::Status open_named(const Image&, SharedFiles*);

// Plans Memory::fills: which pages go where. Reads no contents.
store::Status plan_fills(const Image&, const store::SnapshotReader&, Memory* out);

// Loads everything but the contents of the pages. `shared` (may be null) is used for all processes
// of one job, one after the other.
store::Status load_memory(const Image&, const store::SnapshotReader&, unsigned threads, Memory* out,
                          SharedFiles* shared = nullptr);

// Writes to files that exist, as late as possible, so that a restore that fails leaves them as they
// are.
store::Status write_named_files(const store::SnapshotReader&, unsigned threads, Memory*);

// Called when all processes run: detaches the System V segments that were made, so that only the
// program has them.
void let_segments_go();
// Called when no process will run: removes them.
void remove_segments();

// Loads the pages, from `threads` threads at once, into Memory::pages. Used where another process
// may not be written to (memory/fill.h).
store::Status load_pages(const store::SnapshotReader&, unsigned threads, Memory*);

}  // namespace gpuckpt::restore
