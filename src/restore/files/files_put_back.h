// A restore's side of --files-in-snapshot: files are as they were at the snapshot, with their names
// (hard links), and their later state is set aside beside them.
//
// Owner: the supervisor. Threads: one. Errors: a Status; one that is destroyed without keep()
// undoes everything.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "restore/files/stored_file.h"
#include "store/store.h"

namespace gpuckpt::restore {

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
  store::Status make_room(const std::string& path);
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
