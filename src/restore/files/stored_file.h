// What --files-in-snapshot knows of a file, a folder or a symbolic link (file_keeper.h stores them,
// files_put_back.h puts them back).
//
// A file with several names (hard links) has an entry for each, all with the same contents.
//
// Owner: none. Threads: any. Errors: a Status, or false.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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

// What is there now. False: nothing, or a device, socket or pipe, which have no contents.
bool describe(const std::string& path, StoredFile* out);

inline constexpr uint64_t kPiece = 1 << 20;  // bytes that are read and written at once

// The end of a path that holds the later state of a folder or file beside it: it belongs to no
// snapshot, and no restore sets it aside again.
inline constexpr char kAside[] = ".gpuckpt-later-";

bool is_below(const std::string& path, const std::string& folder);  // or is the folder itself
// The absolute paths that a blob lists at `key`.
std::vector<std::string> paths_in(const nlohmann::json& files_blob, const char* key);
// Copies [0, size) of one file behind what is at `at` of the other; `path` is named by an error.
store::Status copy_bytes(int from, uint64_t size, int to, uint64_t at, const std::string& path);
store::Status file_error(const std::string& path);  // with errno's text

// The folders that GPUCKPT_FILES names: "open" or "1" is none but files open for writing, else
// names with colons in between.
std::vector<std::string> folders_in(const std::string& text);

}  // namespace gpuckpt::restore
