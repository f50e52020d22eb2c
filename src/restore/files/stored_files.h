// --files-in-snapshot: the contents of the files that a program has open for writing, and of all
// that is below folders the user names, are part of the snapshot; a restore puts them back.
//
// They must be those of the moment at which the program is stopped. Most files do not change from
// one moment to the next, so the writer copies before the stop what changed since the snapshot
// before, and while all processes are stopped only what changed since that copy (by size, times and
// inode). Where the file system can clone files (FICLONE) a copy is one of its tables only. All
// copies are nameless files in the store's folder; they go into the store when the program runs
// again. A file with several names (hard links) is stored once, and has the same names again.
//
// Owner: the writer has the FileKeeper, the supervisor the FilesPutBack. Threads: one. Errors:
// a Status; a FilesPutBack that is not kept undoes what it did.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "restore/image/image.h"
#include "restore/memory/memory_loader.h"
#include "store/store.h"

namespace gpuckpt::restore {

// What a folder or file was at the moment of the snapshot.
struct StoredFile {
  enum Kind { kRegular = 1, kFolder = 2, kLink = 3 };
  Kind kind = kRegular;
  std::string path, target;  // target: of a symbolic link
  uint32_t mode = 0, uid = 0, gid = 0;
  uint64_t dev = 0, ino = 0, size = 0, mtime_ns = 0, ctime_ns = 0;
  uint64_t space = 0;  // where the bytes are; 0: there are none
  uint64_t links = 1;  // how many names a regular file has, here and elsewhere

  bool same_as(const StoredFile& other) const;       // nothing happened to it in between
  bool same_file_as(const StoredFile& other) const;  // the same, maybe by another name
  // One for all names of a file.
  std::string key() const;
};

nlohmann::json to_json(const StoredFile& file);
bool from_json(const nlohmann::json& j, StoredFile* out);
std::vector<StoredFile> stored_files(const nlohmann::json& files_blob);

// The folders that GPUCKPT_FILES names: "open" or "1" is none but files open for writing, else
// names with colons in between.
std::vector<std::string> folders_in(const std::string& text);

// The writer's side.
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

// A restore's side: files as they were, the later state set aside beside them. Destroyed without
// keep() it undoes everything.
class FilesPutBack {
 public:
  ~FilesPutBack();
  // `except`: paths that are left alone.
  store::Status run(const store::SnapshotReader& reader, const nlohmann::json& files_blob,
                    const std::vector<std::string>& except);
  void keep();

 private:
  struct Step {
    std::string now, before;  // `now` was `before`; `before` empty: it is new, and removed again
    bool copied = false;      // `now` is a copy of what `before` held, which was overwritten
    std::string file = {};  // of which `before` was another name; `now` is a name of the copy of it
  };
  // What is written, and is durable and has its name after finish().
  struct Pending {
    std::string written;
    const StoredFile* file;
    bool replaces = false;  // something else has the name now
  };
  store::Status put_files(const store::SnapshotReader& reader,
                          const std::vector<std::string>& except);
  store::Status put(const store::SnapshotReader& reader, const StoredFile& file);
  store::Status overwrite(const store::SnapshotReader& reader, const StoredFile& file);
  store::Status put_folder(const StoredFile& file);
  store::Status put_link(const StoredFile& file);
  store::Status put_name(const store::SnapshotReader& reader, const StoredFile& file,
                         const std::string& other_name);
  store::Status finish();
  store::Status part_names();
  static void link_back(const Step& step);
  store::Status set_aside(const std::string& path);
  store::Status copy_aside(const std::string& path);
  store::Status set_others_aside(const std::string& folder);
  std::string place_aside(const std::string& path);

  std::vector<std::string> folders_, left_out_;
  std::map<std::string, StoredFile> wanted_;
  std::map<std::string, std::string> aside_;  // by folder (or file): where its later state goes
  std::vector<Step> steps_;
  std::vector<Pending> pending_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> overwritten_;  // device, inode: its step
  std::vector<StoredFile> folder_times_;
  uint64_t written_ = 0;
  bool kept_ = false;
};

}  // namespace gpuckpt::restore
