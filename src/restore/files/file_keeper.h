// The writer's side of --files-in-snapshot: the contents of the files that a program has open for
// writing, and of all that is below folders the user names, go into the snapshot.
//
// They must be those of the moment at which the program is stopped. Most files do not change from
// one moment to the next, so the writer copies before the stop what changed since the snapshot
// before, and while all processes are stopped only what changed since that copy (by size, times and
// inode). Where the file system can clone files (FICLONE) a copy is one of its tables only. All
// copies are nameless files in the store's folder; they go into the store when the program runs
// again. A file with several names is stored once.
//
// Owner: the writer's job. Threads: one. Errors: a Status.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptors/fd.h"
#include "restore/files/stored_file.h"
#include "store/store.h"

namespace gpuckpt::restore {

class FileKeeper {
 public:
  // `folders`: absolute; `staging`: a folder with room, on the disk of the store.
  FileKeeper(std::vector<std::string> folders, std::string staging)
      : folders_(std::move(folders)), staging_(std::move(staging)) {}
  // Before the stop. `parent`: files of the snapshot before, empty when nothing can be taken from
  // it.
  store::Status prepare(const std::vector<int64_t>& processes, std::vector<StoredFile> parent,
                        uint64_t patience_ms);
  // While all stand.
  store::Status take(const std::vector<int64_t>& processes);
  // When they run again: puts the contents into the snapshot.
  store::Status store(store::SnapshotWriter& writer);

  const std::vector<StoredFile>& files() const { return files_; }
  const std::vector<std::string>& folders() const { return folders_; }
  uint64_t taken_bytes() const { return taken_bytes_; }  // copied while all were stopped
  bool taken() const { return taken_; }

 private:
  // Where a copy is.
  struct Copy {
    StoredFile of;
    std::shared_ptr<Fd> file;
    uint64_t at = 0;
    uint64_t copied_ns = 0;
  };
  store::Status list(const std::vector<int64_t>& processes, std::vector<StoredFile>* out) const;
  store::Status list_folder(const std::string& folder, std::vector<StoredFile>* out) const;
  const StoredFile* in_parent(const StoredFile& file) const;
  const Copy* copy_of(const StoredFile& file) const;
  store::Status copy(const StoredFile& file, uint64_t* bytes);
  store::Status new_staging_file(std::shared_ptr<Fd>* out) const;

  std::vector<std::string> folders_;
  std::string staging_;
  std::map<std::string, StoredFile> parent_;
  std::map<std::string, Copy> copies_;  // by StoredFile::key()
  std::vector<StoredFile> files_;
  std::shared_ptr<Fd> common_;  // copies that are no clones lie in it, one behind the other
  uint64_t common_used_ = 0, taken_bytes_ = 0;
  bool can_clone_ = true, taken_ = false;
};

}  // namespace gpuckpt::restore
