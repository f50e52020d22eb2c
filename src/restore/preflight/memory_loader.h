// Memory of a snapshot on its way to the launcher: shared memory, files without a name and the
// bytes of private memory, as descriptors that the launcher maps.
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

#include "restore/preflight/image.h"
#include "restore/protocol/plan.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(o.release()) {}
  Fd& operator=(Fd&& o) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

using AddressRange = store::SnapshotReader::Range;

// Folders that had lost their names, made again.
using Folders = std::map<FileKey, Fd>;

// Seals that must be there before anything is mapped, because a mapping would prevent them. The
// others are added in the end (PlanFd::seals).
inline constexpr uint32_t kEarlySeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// Memory of the snapshot, ready to be mapped by the launcher. Made once, used for every attempt to
// start.
struct Memory {
  // Room for all data extents of kSpaceHost, one behind the other. Empty unless load_pages was
  // called: mostly they go from the store into the new process directly.
  Fd pages;
  bool pages_loaded = false;
  bool lazy = false;  // as asked: large mappings are filled while the program runs (pager.h)
  std::optional<uint64_t> steps;  // as asked: Plan::steps
  Fd device;                      // a DeviceRing (device_ring.h); none: no device memory
  std::vector<PlanFill> fills;
  std::vector<PlanExtent> extents;  // zeros in device memory
  std::vector<Fd> files, shared;    // by index of Image::files and Image::shared
  // The same objects with other rights, as the program's mappings had them: files open for writing,
  // shared memory open for reading only.
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
  std::set<int> original;  // of these: gets the memfd's first description (FdMaker::make_memory)
  std::shared_ptr<Folders> folders;  // of all processes of a job
  std::vector<std::pair<std::string, std::vector<uint8_t>>> blobs;
  // Mappings that the process is born with (driver/common_memory.h), and where they are then.
  struct Inherited {
    AddressRange range;
    uint64_t at;
  };
  std::vector<Inherited> inherited;
  std::vector<AddressRange> foreign;  // pages in them that it does not have
};

// Files in memory that several processes of a job have in common, by device (as in
// /proc/PID/maps) and inode. `whole`: its size, contents and seals are there.
struct SharedFile {
  Fd file;
  bool whole = false;
  bool named = false;            // it is a file somewhere
  bool original_given = false;   // a description of a memfd has the memfd's first one
  bool in_pieces = false;        // a System V segment of which a process has a part mapped
  std::optional<int> segment{};  // its id now
};
using SharedFiles = std::map<std::pair<uint64_t, uint64_t>, SharedFile>;

// Those that have a name in this process. First for all processes of a job.
store::Status open_named(const Image&, SharedFiles*);

// Memory::fills: what of the pages goes where. Nothing is read.
store::Status plan_fills(const Image&, const store::SnapshotReader&, Memory* out);

// Everything but the contents of the pages. `shared` (may be null) is used for all processes of one
// job, one after the other.
store::Status load_memory(const Image&, const store::SnapshotReader&, unsigned threads, Memory* out,
                          SharedFiles* shared = nullptr);

// What changes files that stay, as late as possible: a restore that fails leaves them as they are.
store::Status write_named_files(const store::SnapshotReader&, unsigned threads, Memory*);

// Called when all processes run: segments of System V that were made stay with the program alone.
void let_segments_go();
// Called when none will run: they go again.
void remove_segments();

// The pages, from `threads` threads at once, into Memory::pages: where another process may not be
// written to (driver/fill.h).
store::Status load_pages(const store::SnapshotReader&, unsigned threads, Memory*);

}  // namespace gpuckpt::restore
